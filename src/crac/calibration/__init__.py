"""Calibrators that are fitted after training: probabilities that mean something, from any model."""

from crac.calibration.base import Calibrator
from crac.calibration.class_ import ClassCalibrator
from crac.calibration.class_region import ClassRegionCalibrator
from crac.calibration.class_region_affine import ClassRegionAffineCalibrator
from crac.calibration.identity import IdentityCalibrator
from crac.calibration.network import Calibrated
from crac.calibration.pieces import log_probabilities
from crac.calibration.region import RegionCalibrator
from crac.calibration.registry import CALIBRATORS, build_calibrator, load_calibrator
from crac.calibration.temperature import TemperatureCalibrator
from crac.calibration.vector import VectorCalibrator

__all__ = [
    "CALIBRATORS",
    "Calibrated",
    "Calibrator",
    "ClassCalibrator",
    "ClassRegionAffineCalibrator",
    "ClassRegionCalibrator",
    "IdentityCalibrator",
    "RegionCalibrator",
    "TemperatureCalibrator",
    "VectorCalibrator",
    "build_calibrator",
    "load_calibrator",
    "log_probabilities",
]
