"""What nnU-Net finds when ``nnUNet_extTrainer`` names this folder."""

from crac.integrations.nnunet.trainer import (
    nnUNetTrainerCE,
    nnUNetTrainerCRaC,
    nnUNetTrainerCRaCSigned,
    nnUNetTrainerMbLS,
    nnUNetTrainerNACL,
    nnUNetTrainerSVLS,
)

__all__ = [
    "nnUNetTrainerCE",
    "nnUNetTrainerCRaC",
    "nnUNetTrainerCRaCSigned",
    "nnUNetTrainerMbLS",
    "nnUNetTrainerNACL",
    "nnUNetTrainerSVLS",
]
