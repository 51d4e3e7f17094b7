"""Segmentation networks whose probabilities can be trusted."""

from crac import functional
from crac._version import __version__

__all__ = ["__version__", "functional"]
