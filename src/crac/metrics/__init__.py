"""Streaming meters and measures of segmentation quality."""

from crac.metrics.calibration import CalibrationMeter
from crac.metrics.ranks import friedman_rank, friedman_test, nemenyi, paired_bootstrap, ranks
from crac.metrics.results import CalibrationResult, ClassCalibration
from crac.metrics.segmentation import average_surface_distance, dice, hd95, surface_dice

__all__ = [
    "CalibrationMeter",
    "CalibrationResult",
    "ClassCalibration",
    "average_surface_distance",
    "dice",
    "friedman_rank",
    "friedman_test",
    "hd95",
    "nemenyi",
    "paired_bootstrap",
    "ranks",
    "surface_dice",
]
