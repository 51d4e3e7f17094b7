"""What can be promised with a number of patients, and the smallest bound that keeps a promise.

Patients are the units: volumes of one patient resemble each other and are no further evidence. A promise at level
``alpha`` with ``n`` patients is kept by every choice whose losses, at most 1 a patient, add up with one more patient's
worst to no more than ``alpha (n + 1)`` (conformal risk control, Angelopoulos et al.).
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from crac.errors import InputError, one_of

Unit = Literal["mean", "worst"]
"""What several volumes of a patient count as: their mean loss, or their worst."""

SLACK = 1e-9
"""So that 1 patient in 10 is a tenth whatever rounding does."""


def check_unit(unit: str) -> None:
    """Refuse what is no :data:`Unit`."""
    if unit not in get_args(Unit):
        raise one_of("unit", unit, get_args(Unit))


def check_alpha(alpha: float) -> float:
    """Return the risk that is accepted as a number; one that is not between 0 and 1 is refused."""
    if isinstance(alpha, bool) or not isinstance(alpha, int | float) or not 1e-9 <= alpha < 1:
        raise InputError(
            f"alpha must be a number between 0 and 1, the risk that is accepted, of at least 1e-9; got {alpha!r}"
        )
    return float(alpha)


def patients_needed(alpha: float) -> int:
    """The fewest patients with which anything can be promised: ``alpha >= 1 / (n + 1)``, and never one alone."""
    return max(2, math.ceil(1 / alpha - 1 - SLACK))


def too_few(patients: int, alpha: float) -> str | None:
    """Why so many patients cannot promise anything; None if they can."""
    needed = patients_needed(alpha)
    if patients >= needed:
        return None
    if not patients:
        return f"no calibration patient has it; at least {needed} are needed to promise a risk of {alpha:g}"
    return (
        f"{patients} calibration patient{'s' * (patients > 1)} cannot promise a risk of {alpha:g}; "
        f"at least {needed} are needed"
    )


def within_budget(total: NDArray[np.float64], patients: int, alpha: float) -> NDArray[np.bool_]:
    """Whether the summed losses of the patients, and 1 for the next one, stay within ``alpha (n + 1)``."""
    return np.asarray(total + 1 <= alpha * (patients + 1) + SLACK * (patients + 1))


def reduce_unit(losses: Sequence[NDArray[np.float64]], unit: Unit) -> NDArray[np.float64]:
    """The loss of a patient from those of their volumes."""
    stacked = np.stack(losses)
    return np.asarray(stacked.max(0) if unit == "worst" else stacked.mean(0))


def least_bound(scores: Mapping[str, Iterable[float]], alpha: float, unit: Unit) -> float:
    """The smallest ``q`` such that a new patient's scores exceed it with probability of at most ``alpha``.

    With one volume a patient it is the ``ceil((n + 1)(1 - alpha))``-th smallest score.

    Args:
        scores: The scores of the volumes of each patient; infinite ones are allowed.
        alpha: Level.
        unit: Whether a patient with several volumes counts with the share of those that exceed ``q``, or wholly as
            soon as one does.

    Returns:
        NaN if there are too few patients.
    """
    patients = len(scores)
    if too_few(patients, alpha):
        return math.nan
    volumes = [[max(own)] if unit == "worst" else list(own) for own in scores.values()]
    values = np.array([score for own in volumes for score in own])
    weights = np.array([1 / len(own) for own in volumes for _ in own])
    order = np.argsort(values, kind="stable")
    values, weights = values[order], weights[order]
    # The weight of all that lies above each value; equal values lie above none of each other.
    last = np.searchsorted(values, values, side="right")
    above = np.concatenate([np.cumsum(weights[::-1])[::-1], [0.0]])[last]
    return float(values[np.flatnonzero(within_budget(above, patients, alpha))[0]])
