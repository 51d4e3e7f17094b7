"""One of two processes of a training by nnU-Net: python ranks.py RANK FOLDER

nnU-Net trains in several processes on GPUs only. Here its device is changed to the CPU, and what it would set up for
GPUs with it; everything else is as it would be.
"""

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from nnunetv2.run.run_training import get_trainer_from_args
from nnunetv2.training.nnUNetTrainer import nnUNetTrainer as stock  # noqa: N813 (a module of the class's name)
from test_trainer import DATASET, made_up_batch
from torch.nn.parallel import DistributedDataParallel

import crac

RANKS = 2


def main(rank: int, folder: Path) -> None:
    dist.init_process_group("gloo", init_method=f"file://{folder / 'meeting'}", rank=rank, world_size=RANKS)
    stock.DDP = lambda network, device_ids: DistributedDataParallel(network)
    trainer = get_trainer_from_args(DATASET, "2d", 0, "nnUNetTrainerCRaC", device=torch.device("cpu"))
    trainer.device, trainer.grad_scaler = torch.device("cpu"), None
    trainer.initialize()
    trainer.on_epoch_start()
    torch.manual_seed(rank)
    trainer.on_train_epoch_start()
    trainer.on_train_epoch_end([trainer.train_step(made_up_batch(trainer))])
    torch.manual_seed(10)
    batches = [made_up_batch(trainer) for _ in range(RANKS)]
    plain = crac.CRaCLoss(num_classes=3, border="replicate")
    with torch.no_grad():
        trainer.on_validation_epoch_start()
        outputs = [trainer.validation_step(batches[rank])]
        for batch in batches:  # what one process would have observed
            plain.observe(trainer.network.module(batch["data"])[0], batch["target"][0].long())
        trainer.on_validation_epoch_end(outputs)
    plain.update_multipliers()
    trainer.on_epoch_end()
    trainer.save_checkpoint(str(folder / "checkpoint.pth"))
    torch.save({"seen": trainer.loss.calibration.state_dict(), "expected": plain.state_dict()}, folder / f"{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
