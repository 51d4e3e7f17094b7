"""Segmentation networks whose probabilities can be trusted."""

from crac import functional
from crac._version import __version__
from crac.losses import METHODS, CRaCLoss, DeepSupervision, build_loss
from crac.metrics import CalibrationMeter, dice, friedman_rank, hd95

__all__ = [
    "METHODS",
    "CRaCLoss",
    "CalibrationMeter",
    "DeepSupervision",
    "__version__",
    "build_loss",
    "dice",
    "friedman_rank",
    "functional",
    "hd95",
]
