"""``temperature``: one number that divides all logits."""

from __future__ import annotations

from crac.calibration.base import Calibrator

__all__ = ["TemperatureCalibrator"]


class TemperatureCalibrator(Calibrator):
    """``softmax(l / T)`` with one temperature for every voxel (Guo et al., ICML 2017)."""

    name = "temperature"
