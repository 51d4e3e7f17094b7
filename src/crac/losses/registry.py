"""Every method by its short name."""

from __future__ import annotations

from typing import Any

from crac.errors import InputError, one_of
from crac.losses.base import SegmentationLoss
from crac.losses.bwcr import ConsistencyLoss
from crac.losses.ce import CrossEntropyLoss
from crac.losses.crac import CRaCLoss
from crac.losses.ecp import EntropyPenaltyLoss
from crac.losses.fl import FocalLoss
from crac.losses.ls import LabelSmoothingLoss
from crac.losses.mbls import MarginLoss
from crac.losses.ml1ace import CalibrationErrorLoss
from crac.losses.nacl import NACLLoss
from crac.losses.svls import SpatialLabelSmoothingLoss

__all__ = ["METHODS", "build_loss"]

METHODS: dict[str, type[SegmentationLoss]] = {
    "ce": CrossEntropyLoss,
    "fl": FocalLoss,
    "ecp": EntropyPenaltyLoss,
    "ls": LabelSmoothingLoss,
    "svls": SpatialLabelSmoothingLoss,
    "mbls": MarginLoss,
    "nacl": NACLLoss,
    "bwcr": ConsistencyLoss,
    "ml1ace": CalibrationErrorLoss,
    "crac": CRaCLoss,
}
"""Short name -> loss class."""


def build_loss(name: str, num_classes: int, **options: Any) -> SegmentationLoss:
    """Make a loss by its short name.

    Args:
        name: One of :data:`METHODS`.
        num_classes: ``K``, the background included.
        **options: Keywords of the method's class.

    Example:
        >>> build_loss("nacl", num_classes=4, alpha=0.2).alpha
        0.2
    """
    if name not in METHODS:
        raise one_of("name", name, METHODS)
    try:
        return METHODS[name](num_classes, **options)
    except TypeError as error:
        raise InputError(f"options of {name!r}: {error}") from error
