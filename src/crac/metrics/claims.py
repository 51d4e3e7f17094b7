"""What may be claimed from a number of patients.

Even where all of five patients point the same way, chance does so in one of sixteen cases. With six that is less than
one in twenty, so nothing is claimed below six. From there on an interval of 95 % leaves out the true mean of normal
differences in 5 to 7 % of cases, of strongly skewed ones in 11 % with 6 patients and 7 % with 20.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from crac.metrics.ranks import Interval, paired_bootstrap

LEAST_PATIENTS = 6
"""Patients below whom no interval, and no better or worse, is printed anywhere."""


def too_few(patients: int) -> str:
    """Say why nothing is claimed, in one sentence without its full stop."""
    number = "1 patient is" if patients == 1 else f"{patients} patients are"
    return f"{number} too few for an interval or a comparison (at least {LEAST_PATIENTS} are needed)"


def known_mean(values: ArrayLike) -> float:
    """Return the mean of the values that are not NaN; NaN if there are none."""
    known = np.asarray(values, dtype=np.float64)
    known = known[~np.isnan(known)]
    return float(known.mean()) if known.size else float("nan")


def by_patient(
    rows: Iterable[Mapping[str, Any]], column: str, reduce: Callable[[list[float]], float] = known_mean
) -> dict[str, float]:
    """Return the mean of a column over each ``patient``'s rows that have a value; NaN where none has.

    Another ``reduce`` than the mean gets all values of a patient's rows.
    """
    values: dict[str, list[float]] = {}
    for row in rows:
        values.setdefault(row["patient"], []).append(row[column])
    return {patient: reduce(own) for patient, own in values.items()}


def patient_difference(first: ArrayLike, second: ArrayLike) -> Interval:
    """Return how much two models differ on the same patients, with a 95 % interval over them.

    Args:
        first: ``(patients,)`` values of one model; patients where either is NaN are left out.
        second: ``(patients,)`` values of the other.

    Returns:
        The mean difference; with fewer than :data:`LEAST_PATIENTS` the ends of its interval are NaN, and without any
        patient everything is.
    """
    differences = np.asarray(first, dtype=np.float64) - np.asarray(second, dtype=np.float64)
    differences = differences[~np.isnan(differences)]
    if differences.size == 0:
        return Interval(np.nan, np.nan, np.nan)
    if differences.size < LEAST_PATIENTS:
        return Interval(float(differences.mean()), np.nan, np.nan)
    return paired_bootstrap(differences, np.zeros_like(differences))


def patient_mean(values: ArrayLike) -> Interval:
    """Return the mean over patients with its interval, as :func:`patient_difference` has it."""
    return patient_difference(values, np.zeros_like(np.asarray(values, dtype=np.float64)))


def side_of_zero(interval: Interval) -> int:
    """Return 1 if all of an interval lies above 0, -1 if below; 0 if it holds 0 or there is no interval."""
    return int(interval.low > 0) - int(interval.high < 0)
