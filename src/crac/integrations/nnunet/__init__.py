"""nnU-Net v2: trainers found through its ``nnUNet_extTrainer`` variable.

:mod:`~crac.integrations.nnunet.trainer` holds them and needs ``nnunetv2``; nothing else here does.
"""

from pathlib import Path

__all__ = ["TRAINERS", "trainers_folder"]

TRAINERS = (
    "nnUNetTrainerCRaC", "nnUNetTrainerCRaCSigned", "nnUNetTrainerNACL", "nnUNetTrainerSVLS", "nnUNetTrainerMbLS",
    "nnUNetTrainerCE",
)  # fmt: skip
"""What ``nnUNetv2_train -tr`` accepts once ``nnUNet_extTrainer`` names :func:`trainers_folder`."""


def trainers_folder() -> Path:
    """The folder to put on ``nnUNet_extTrainer``.

    It holds a single file that imports the trainers: nnU-Net imports every file of such a folder and forgets the
    modules afterwards, which must not happen to the package itself.
    """
    return Path(__file__).parent / "external"
