"""Every method by its short name."""

from __future__ import annotations

import inspect
from numbers import Integral, Real
from typing import Any

from crac.errors import InputError, one_of
from crac.losses.base import SegmentationLoss
from crac.losses.bwcr import BWCRLoss
from crac.losses.ce import CELoss
from crac.losses.crac import CRaCLoss
from crac.losses.ecp import ECPLoss
from crac.losses.fl import FLLoss
from crac.losses.ls import LSLoss
from crac.losses.mbls import MbLSLoss
from crac.losses.ml1ace import ML1ACELoss
from crac.losses.multipliers import Multipliers
from crac.losses.nacl import NACLLoss
from crac.losses.svls import SVLSLoss

__all__ = ["METHODS", "build_loss"]

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
    known = _keywords(METHODS[name])
    try:
        for option, value in options.items():
            if option not in known:
                raise TypeError(f"there is no {option!r}, only {', '.join(sorted(known))}")
            _check_number(option, value, known[option])
        return METHODS[name](num_classes, **options)
    except InputError:
        raise
    except (TypeError, ValueError) as error:
        raise InputError(f"options of {name!r}: {error}") from error


def _keywords(method: type[SegmentationLoss]) -> dict[str, str]:
    """Every keyword of a loss, those it hands on to its bases included -> its annotation."""
    found: dict[str, str] = {}
    for base in reversed(method.__mro__):
        if issubclass(base, SegmentationLoss | Multipliers) and "__init__" in vars(base):
            parameters = list(inspect.signature(base).parameters.values())
            found |= {each.name: str(each.annotation) for each in parameters if each.kind is not each.VAR_KEYWORD}
    for decided in ("num_classes", "regions"):  # by the data and by the radii
        found.pop(decided, None)
    return found


def _check_number(option: str, value: object, annotation: str) -> None:
    kinds = set(annotation.split(" | "))
    if not kinds <= {"float", "int", "None"} or (value is None and "None" in kinds):
        return
    wanted, words = (Real, "a number") if "float" in kinds else (Integral, "a whole number")
    if isinstance(value, bool) or not isinstance(value, wanted) or value != value:
        raise TypeError(f"{option} must be {words}; got {value!r}")
