"""One file per method, each a module called with ``(logits, labels)``."""

from crac.losses.base import SegmentationLoss
from crac.losses.bwcr import ConsistencyLoss
from crac.losses.ce import CrossEntropyLoss
from crac.losses.crac import PRESETS, CRaCLoss
from crac.losses.deep_supervision import DeepSupervision
from crac.losses.ecp import EntropyPenaltyLoss
from crac.losses.fl import FocalLoss
from crac.losses.ls import LabelSmoothingLoss
from crac.losses.mbls import MarginLoss
from crac.losses.ml1ace import CalibrationErrorLoss
from crac.losses.nacl import NACLLoss
from crac.losses.registry import METHODS, build_loss
from crac.losses.svls import SpatialLabelSmoothingLoss

__all__ = [
    "METHODS",
    "PRESETS",
    "CRaCLoss",
    "CalibrationErrorLoss",
    "ConsistencyLoss",
    "CrossEntropyLoss",
    "DeepSupervision",
    "EntropyPenaltyLoss",
    "FocalLoss",
    "LabelSmoothingLoss",
    "MarginLoss",
    "NACLLoss",
    "SegmentationLoss",
    "SpatialLabelSmoothingLoss",
    "build_loss",
]
