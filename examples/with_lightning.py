"""CRaC in Lightning, on made-up hearts: the loss is an attribute of the module, a callback does the outer step.

Run: python examples/with_lightning.py
"""

import lightning.pytorch as pl
import torch
from torch import Tensor
from torch.utils.data import DataLoader

import crac
import phantoms
from crac.integrations.lightning import MultiplierCallback

EPOCHS = 10


class Segmenter(pl.LightningModule):
    """Nothing here is special to CRaC but the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.network = phantoms.network()
        self.loss = crac.CRaCLoss(num_classes=4)

    def training_step(self, batch: tuple[Tensor, Tensor], _: int) -> Tensor:
        """Cross-entropy and penalty."""
        images, labels = batch
        return self.loss(self.network(images), labels)

    def validation_step(self, batch: tuple[Tensor, Tensor], _: int) -> None:
        """Each call of the loss is observed by the callback."""
        images, labels = batch
        self.log("val_loss", self.loss(self.network(images), labels))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Any optimiser."""
        return torch.optim.Adam(self.parameters(), lr=1e-2)


pl.seed_everything(0, verbose=False)
train, validation = phantoms.hearts(4, seed=0), phantoms.hearts(3, seed=1)
module = Segmenter()
trainer = pl.Trainer(
    max_epochs=EPOCHS,
    accelerator="cpu",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    callbacks=[MultiplierCallback()],
)
trainer.fit(module, DataLoader(train, batch_size=10, shuffle=True), DataLoader(validation, batch_size=10))
print("weights inside", module.loss.lambda_[0].tolist(), "on boundaries", module.loss.lambda_[1].tolist())
print(phantoms.calibration(module.network, validation))
