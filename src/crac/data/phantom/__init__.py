"""Made-up patients in the layouts of ACDC and FLARE: deterministic, seconds to write, free to share.

They are not meant to fool a radiologist. They have what matters for calibration: anatomy that varies, weak edges,
and labels whose boundary wavers, so that no network can be sure there.
"""

from crac.data.phantom.abdominal import abdominal
from crac.data.phantom.cardiac import cardiac

__all__ = ["abdominal", "cardiac"]
