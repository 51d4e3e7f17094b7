"""``class_region``: a temperature for each predicted class and region."""

from __future__ import annotations

from crac.calibration.base import Calibrator

__all__ = ["ClassRegionCalibrator"]


class ClassRegionCalibrator(Calibrator):
    """``softmax(l / T[k, r])``, ``k`` the predicted class and ``r`` the region of the voxel in the map of these."""

    name = "class_region"
    by_class = by_region = True
