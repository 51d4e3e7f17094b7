"""``temperature``: one number that divides all logits."""

from crac.calibration.base import Calibrator


class TemperatureCalibrator(Calibrator):
    """``softmax(l / T)`` with one temperature for every voxel (Guo et al., ICML 2017)."""

    name = "temperature"
