"""``region``: a temperature for the inside of predicted structures and one for their boundaries."""

from __future__ import annotations

from crac.calibration.base import Calibrator

__all__ = ["RegionCalibrator"]


class RegionCalibrator(Calibrator):
    """``softmax(l / T[r])``, ``r`` the region of the voxel in the map of predicted classes."""

    name = "region"
    by_region = True
