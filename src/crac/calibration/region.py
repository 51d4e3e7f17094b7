"""``region``: a temperature for the inside of predicted structures and one for their boundaries."""

from crac.calibration.base import Calibrator


class RegionCalibrator(Calibrator):
    """``softmax(l / T[r])``, ``r`` the region of the voxel in the map of predicted classes."""

    name = "region"
    by_region = True
