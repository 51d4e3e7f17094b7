"""CRaC in MONAI's engines, on made-up hearts: a wrapped loss, a handler for the outer step, calibration as metric.

Run: python examples/with_monai.py
"""

import torch
from monai.data import DataLoader, Dataset
from monai.engines import SupervisedEvaluator, SupervisedTrainer
from monai.handlers import IgniteMetricHandler, StatsHandler, ValidationHandler, from_engine
from monai.transforms import Activationsd
from monai.utils import set_determinism

import crac
import phantoms
from crac.integrations.monai import CalibrationMetric, MonaiLoss, MultiplierHandler

EPOCHS = 10


def batches(patients: int, seed: int) -> DataLoader:
    data = phantoms.hearts(patients, seed)
    # Labels with a channel, as MONAI's transforms leave them.
    items = [{"image": image, "label": label.unsqueeze(0).float()} for image, label in data]
    return DataLoader(Dataset(items), batch_size=10, shuffle=True)


set_determinism(0)
network = phantoms.network()
loss = MonaiLoss(crac.CRaCLoss(num_classes=4))
ece = CalibrationMetric(num_classes=4, metric="ece", mask="union_foreground")
evaluator = SupervisedEvaluator(
    device="cpu",
    val_data_loader=batches(3, seed=1),
    network=network,
    postprocessing=Activationsd(keys="pred", softmax=True),
    key_val_metric={"ece": IgniteMetricHandler(ece, output_transform=from_engine(["pred", "label"]))},
    metric_cmp_fn=lambda new, best: new < best,
    val_handlers=[StatsHandler(output_transform=lambda _: None), MultiplierHandler(loss)],
)
trainer = SupervisedTrainer(
    device="cpu",
    max_epochs=EPOCHS,
    train_data_loader=batches(4, seed=0),
    network=network,
    optimizer=torch.optim.Adam(network.parameters(), lr=1e-2),
    loss_function=loss,
    train_handlers=[ValidationHandler(interval=1, validator=evaluator)],
)
trainer.run()
multipliers = loss.loss.lambda_
print("weights inside", multipliers[0].tolist(), "on boundaries", multipliers[1].tolist())
print(f"ECE {evaluator.state.metrics['ece']:.3f}, best {evaluator.state.best_metric:.3f}")
