"""Every method by its short name."""

import inspect
from typing import Any

from crac.errors import one_of
from crac.losses.base import SegmentationLoss
from crac.losses.bwcr import BWCRLoss
from crac.losses.ce import CELoss
from crac.losses.crac import CRaCLoss
from crac.losses.ecp import ECPLoss
from crac.losses.fl import FLLoss
from crac.losses.ls import LSLoss
from crac.losses.mbls import MbLSLoss
from crac.losses.ml1ace import ML1ACELoss
from crac.losses.nacl import NACLLoss
from crac.losses.svls import SVLSLoss

METHODS: dict[str, type[SegmentationLoss]] = {
    "ce": CELoss,
    "fl": FLLoss,
    "ecp": ECPLoss,
    "ls": LSLoss,
    "svls": SVLSLoss,
    "mbls": MbLSLoss,
    "nacl": NACLLoss,
    "bwcr": BWCRLoss,
    "ml1ace": ML1ACELoss,
    "crac": CRaCLoss,
}
"""Short name -> loss class."""


def build_loss(name: str, num_classes: int, **options: Any) -> SegmentationLoss:
    """Return a new loss by its short name.

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
    known = [keyword for keyword in inspect.signature(METHODS[name]).parameters if keyword != "num_classes"]
    for option in options:
        if option not in known:
            raise one_of(f"option of {name!r}", option, known)
    return METHODS[name](num_classes, **options)
