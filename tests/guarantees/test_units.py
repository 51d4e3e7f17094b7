"""What a number of patients can promise: closed forms, and coverage over thousands of calibration sets."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crac.errors import InputError
from crac.guarantees.units import check_alpha, check_unit, least_bound, patients_needed, too_few


@pytest.mark.parametrize(("alpha", "needed"), [(0.5, 2), (0.1, 9), (0.05, 19), (0.01, 99), (0.07, 14), (0.9, 2)])
def test_the_fewest_patients(alpha: float, needed: int) -> None:
    assert patients_needed(alpha) == needed
    assert too_few(needed, alpha) is None
    said = too_few(needed - 1, alpha)
    assert said is not None
    assert f"at least {needed} are needed" in said
    assert too_few(1, alpha) is not None


@given(st.integers(2, 300), st.sampled_from([0.05, 0.1, 0.2, 0.25, 0.5]))
def test_one_volume_a_patient_gives_the_usual_rank(patients: int, alpha: float) -> None:
    scores = np.random.default_rng(patients).permutation(patients) + 1.0
    rank = math.ceil(round((patients + 1) * (1 - alpha), 9))
    found = least_bound({str(i): [score] for i, score in enumerate(scores)}, alpha, "mean")
    assert math.isnan(found) if rank > patients else found == rank


@given(
    st.dictionaries(st.text("ab", max_size=5), st.lists(st.integers(0, 9), min_size=1, max_size=4), min_size=9),
    st.sampled_from(["mean", "worst"]),
)
def test_the_bound_is_the_smallest_that_keeps_the_budget(scores: dict[str, list[float]], unit: str) -> None:
    alpha = 0.3

    def total(bound: float) -> float:
        shares = [np.mean([score > bound for score in own]) for own in scores.values()]
        return sum(math.ceil(share) if unit == "worst" else share for share in shares)

    kept = [bound for bound in range(-1, 10) if total(bound) + 1 <= alpha * (len(scores) + 1) + 1e-9]
    assert least_bound(scores, alpha, unit) == max(min(kept), min(min(own) for own in scores.values()))


def test_infinite_scores_and_ties() -> None:
    assert least_bound({str(i): [math.inf] for i in range(20)}, 0.1, "mean") == math.inf
    assert least_bound({str(i): [2.0] for i in range(20)}, 0.1, "mean") == 2
    mixed = {str(i): [math.inf if i < 1 else float(i)] for i in range(19)}
    assert least_bound(mixed, 0.1, "mean") == 18  # one patient in 20 may be left out, and one is


@pytest.mark.parametrize("alpha", [0, 1, -0.1, math.nan, "0.1", True])
def test_bad_levels_and_units(alpha: object) -> None:
    with pytest.raises(InputError, match="alpha must be a number between 0 and 1"):
        check_alpha(alpha)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="unit must be one of mean, worst; got 'best'"):
        check_unit("best")


@pytest.mark.parametrize("patients", [10, 20, 50])
def test_coverage_over_many_calibration_sets(patients: int) -> None:
    """Scores of very uneven patients, of whom a third has two volumes; one new patient for each calibration set."""
    rng, alpha, sets = np.random.default_rng(patients), 0.1, 2000
    missed = np.empty(sets)
    for number in range(sets):
        people = [rng.lognormal(0, 2) * np.abs(rng.normal(size=rng.choice([1, 1, 2]))) for _ in range(patients + 1)]
        bound = least_bound({str(i): own.tolist() for i, own in enumerate(people[1:])}, alpha, "mean")
        missed[number] = (people[0] > bound).mean()
    error = missed.std() / math.sqrt(sets)
    assert missed.mean() < alpha + 3 * error
    assert missed.mean() > alpha - 1 / (patients + 1) - 3 * error
