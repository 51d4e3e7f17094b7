"""Calibrators that are fitted after training."""

from crac.calibration.temperature import fit_temperature

__all__ = ["fit_temperature"]
