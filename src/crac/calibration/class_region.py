"""``class_region``: a temperature for each predicted class and region."""

from crac.calibration.base import Calibrator


class ClassRegionCalibrator(Calibrator):
    """``softmax(l / T[k, r])``, ``k`` the predicted class and ``r`` the region of the voxel in the map of these."""

    name = "class_region"
    by_class = by_region = True
    default_mask = "all"
