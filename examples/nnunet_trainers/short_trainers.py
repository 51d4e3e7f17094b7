"""A trainer of one's own: nnU-Net finds it because this folder is on ``nnUNet_extTrainer``."""

import torch

from crac.integrations.nnunet.trainer import nnUNetTrainerCRaC


class nnUNetTrainerCRaCShort(nnUNetTrainerCRaC):  # noqa: N801 (nnU-Net's way to name trainers)
    """Two epochs of a few iterations, to see the whole chain work."""

    # nnU-Net wants these very argument names.
    def __init__(
        self,
        plans: dict,
        configuration: str,
        fold: int,
        dataset_json: dict,
        device: torch.device = torch.device("cuda"),  # noqa: B008
    ) -> None:
        super().__init__(plans, configuration, fold, dataset_json, device)
        self.num_epochs = 2
        self.num_iterations_per_epoch = 2
        self.num_val_iterations_per_epoch = 1
