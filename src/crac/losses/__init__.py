"""One file per method, each a module called with ``(logits, labels)``."""

from crac.losses.base import SegmentationLoss
from crac.losses.bwcr import BWCRLoss
from crac.losses.ce import CELoss
from crac.losses.crac import CRaCLoss
from crac.losses.deep_supervision import DeepSupervision
from crac.losses.ecp import ECPLoss
from crac.losses.fl import FLLoss
from crac.losses.ls import LSLoss
from crac.losses.mbls import MbLSLoss
from crac.losses.ml1ace import ML1ACELoss
from crac.losses.nacl import NACLLoss
from crac.losses.presets import PRESETS
from crac.losses.registry import METHODS, build_loss
from crac.losses.svls import SVLSLoss

__all__ = [
    "METHODS",
    "PRESETS",
    "BWCRLoss",
    "CELoss",
    "CRaCLoss",
    "DeepSupervision",
    "ECPLoss",
    "FLLoss",
    "LSLoss",
    "ML1ACELoss",
    "MbLSLoss",
    "NACLLoss",
    "SVLSLoss",
    "SegmentationLoss",
    "build_loss",
]
