"""``class``: a temperature for each predicted class."""

from crac.calibration.base import Calibrator


class ClassCalibrator(Calibrator):
    """``softmax(l / T[k])``, ``k`` the class that is predicted."""

    name = "class"
    by_class = True
