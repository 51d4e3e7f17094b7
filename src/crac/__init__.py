"""Segmentation networks whose probabilities can be trusted."""

from crac import functional
from crac._version import __version__
from crac.losses import METHODS, CRaCLoss, DeepSupervision, build_loss

__all__ = ["METHODS", "CRaCLoss", "DeepSupervision", "__version__", "build_loss", "functional"]
