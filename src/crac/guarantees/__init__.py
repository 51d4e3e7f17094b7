"""Promises about new patients from calibration cases: thresholds, margins, volumes with intervals, cases to look at."""

from crac.guarantees.bundle import Guarantees, load_guarantees
from crac.guarantees.case import Case
from crac.guarantees.margin import Margin
from crac.guarantees.referral import Referral, risk_coverage
from crac.guarantees.risk import RiskControl
from crac.guarantees.volume import VolumeInterval

__all__ = [
    "Case",
    "Guarantees",
    "Margin",
    "Referral",
    "RiskControl",
    "VolumeInterval",
    "load_guarantees",
    "risk_coverage",
]
