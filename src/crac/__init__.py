"""Segmentation networks whose probabilities can be trusted."""

from crac import functional
from crac._version import __version__
from crac.metrics import CalibrationMeter, dice, friedman_rank, hd95

__all__ = ["CalibrationMeter", "__version__", "dice", "friedman_rank", "functional", "hd95"]
