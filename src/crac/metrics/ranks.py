"""Which of several methods is better, and whether that is more than chance."""

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crac.errors import InputError, one_of, require

Floats = NDArray[np.float64]
Ties = Literal["min", "average"]


class FriedmanTest(NamedTuple):
    """Friedman's statistic, and the probability of one at least as large if the methods perform alike."""

    statistic: float
    p_value: float


class Interval(NamedTuple):
    """An estimate with its confidence interval."""

    estimate: float
    low: float
    high: float


def ranks(table: ArrayLike, higher_is_better: bool | Sequence[bool], ties: Ties = "min") -> Floats:
    """Return the rank of every method in every setting; the best method has rank 1.

    Args:
        table: ``(methods, settings)``: one column per metric and data set.
        higher_is_better: For all columns, or for each.
        ties: What equal values get: ``"min"``, the best of the ranks they share (the paper's), or their
            ``"average"``.
    """
    from scipy.stats import rankdata

    values = _checked(table, methods=1, settings=1)
    if ties not in ("min", "average"):
        raise one_of("ties", ties, ("min", "average"))
    better = np.asarray(higher_is_better, dtype=bool)
    if better.ndim and better.shape != values.shape[1:]:
        raise InputError(f"higher_is_better must be one value or {values.shape[1]}, one per column; got {better.size}")
    ranked: Floats = rankdata(np.where(better, -values, values), method=ties, axis=0)
    return ranked


def friedman_rank(table: ArrayLike, higher_is_better: bool | Sequence[bool], ties: Ties = "min") -> Floats:
    """Return the mean rank of every method over all settings; lower is better.

    The arguments are those of :func:`ranks`.

    Example:
        >>> friedman_rank([[0.9, 2.0], [0.8, 1.0]], higher_is_better=[True, False])
        array([1.5, 1.5])
    """
    return np.asarray(ranks(table, higher_is_better, ties).mean(axis=1))


def friedman_test(table: ArrayLike) -> FriedmanTest:
    """Test with Friedman's chi-square whether all methods perform alike.

    Args:
        table: ``(methods, settings)``, at least 3 methods; whether higher or lower is better must be the same in every
            column; otherwise give the table's :func:`ranks`.
    """
    from scipy.stats import friedmanchisquare

    statistic, p_value = friedmanchisquare(*_checked(table))
    return FriedmanTest(float(statistic), float(p_value))


def nemenyi(table: ArrayLike) -> Floats:
    """Compare every pair of methods with Nemenyi's post-hoc test.

    Args:
        table: As for :func:`friedman_test`.

    Returns:
        ``(methods, methods)`` p-values: the probability of mean ranks at least so far apart if the two methods perform
        alike; 1 on the diagonal.
    """
    posthocs = require("scikit_posthocs")
    return np.asarray(posthocs.posthoc_nemenyi_friedman(_checked(table).T), dtype=np.float64)


def paired_bootstrap(
    first: ArrayLike,
    second: ArrayLike,
    statistic: Callable[[Floats], Any] | None = None,
    confidence: float = 0.95,
    resamples: int = 10_000,
    seed: int = 0,
) -> Interval:
    """Return how much two methods differ on the same volumes, with a bootstrap interval over the volumes.

    Percentiles of means drawn from few volumes lie too close together. The interval is therefore taken from percentiles
    further out, by as much as makes it Student's for normal differences: the expanded percentile interval of
    Hesterberg, The American Statistician 69, 371, 2015.

    Args:
        first: ``(volumes,)`` values of one method; volumes where either is NaN are left out.
        second: ``(volumes,)`` values of the other, in the same order.
        statistic: Function of the differences ``first - second`` along the last axis; the mean if not given.
        confidence: Coverage of the interval, nearly so where differences are not normal.
        resamples: Number of times the volumes are drawn with replacement.
        seed: Seed of the resampling.

    Example:
        >>> paired_bootstrap([0.9, 0.8, 0.7], [0.8, 0.7, 0.6]).estimate.__round__(6)
        0.1
    """
    from scipy.stats import bootstrap, norm, t

    one, two = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if one.ndim != 1 or one.shape != two.shape:
        raise InputError(f"first and second must hold one value per volume each; got shapes {one.shape}, {two.shape}")
    if not 0 < confidence < 1:
        raise InputError(f"confidence must lie between 0 and 1; got {confidence!r}")
    difference = one - two
    difference = difference[~np.isnan(difference)]
    if difference.size == 0:
        raise InputError("first and second have no volume on which both hold a number")
    measure = statistic or (lambda values: values.mean(axis=-1))
    estimate = float(measure(difference))
    if difference.size == 1:  # nothing to draw from, and scipy refuses it
        return Interval(estimate, estimate, estimate)
    freedom, tail = difference.size - 1, (1 - confidence) / 2
    wider = 1 - 2 * norm.cdf(t.ppf(tail, freedom) * math.sqrt(difference.size / freedom))
    found = bootstrap(
        (difference,),
        lambda values, axis: measure(values),
        n_resamples=resamples,
        batch=max(1, 2**22 // difference.size),
        vectorized=True,
        confidence_level=wider,
        method="percentile",
        random_state=np.random.default_rng(seed),
    ).confidence_interval
    return Interval(estimate, float(found.low), float(found.high))


def _checked(table: ArrayLike, methods: int = 3, settings: int = 2) -> Floats:
    values = np.asarray(table, dtype=np.float64)
    if values.ndim != 2 or values.shape[0] < methods or values.shape[1] < settings:
        least = f"at least {methods} and {settings} of them"
        raise InputError(f"table must have shape (methods, settings) with {least}; got shape {values.shape}")
    if np.isnan(values).any():
        raise InputError("table must not hold NaN; leave out settings that not every method has")
    return values
