"""``class``: a temperature for each predicted class."""

from __future__ import annotations

from crac.calibration.base import Calibrator

__all__ = ["ClassCalibrator"]


class ClassCalibrator(Calibrator):
    """``softmax(l / T[k])``, ``k`` the class that is predicted."""

    name = "class"
    by_class = True
