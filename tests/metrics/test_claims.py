"""What may be claimed, and from how many patients."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crac.metrics.claims import (
    LEAST_PATIENTS,
    by_patient,
    known_mean,
    patient_difference,
    patient_mean,
    side_of_zero,
    too_few,
)
from crac.metrics.ranks import Interval, paired_bootstrap


@given(st.lists(st.floats(0.1, 1), min_size=1, max_size=LEAST_PATIENTS - 1))
def test_few_patients_have_a_mean_and_no_interval_however_clear_they_are(values):
    found = patient_mean(values)
    assert found.estimate == pytest.approx(np.mean(values))
    assert np.isnan([found.low, found.high]).all()
    assert side_of_zero(found) == 0


def test_six_patients_have_the_interval_of_the_paired_bootstrap():
    rng = np.random.default_rng(0)
    first, second = rng.normal(1, 0.1, 6), rng.normal(0, 0.1, 6)
    found = patient_difference(first, second)
    assert found == pytest.approx(tuple(paired_bootstrap(first, second)))
    assert side_of_zero(found) == 1
    assert side_of_zero(patient_difference(second, first)) == -1


def test_patients_without_a_value_do_not_count():
    values = [1.0, 1.1, 0.9, 1.2, 0.8, np.nan]
    assert np.isnan(patient_mean(values).low)
    assert patient_mean(values).estimate == pytest.approx(1)
    assert np.isnan(patient_mean([np.nan])).all()
    assert np.isnan(patient_mean([])).all()


def test_an_interval_that_touches_0_is_on_neither_side():
    assert [side_of_zero(Interval(0, *ends)) for ends in ((0, 1), (-1, 0), (-1, 1), (0.1, 1), (-1, -0.1))] == [
        *(0, 0, 0, 1, -1),
    ]


def test_five_patients_that_agree_may_be_chance_and_six_may_not():
    """Where the least number comes from: all on one side by chance, two-sided."""
    assert 2 * 0.5 ** (LEAST_PATIENTS - 1) > 0.05 > 2 * 0.5**LEAST_PATIENTS
    assert too_few(1).startswith("1 patient is too few")
    assert too_few(2).startswith("2 patients are too few")


def test_volumes_of_a_patient_are_averaged_where_they_have_a_value():
    rows = [
        {"patient": patient, "dsc": value}
        for patient, value in (("b", 1.0), ("a", np.nan), ("b", np.nan), ("c", np.nan), ("a", 0.25), ("b", 0.5))
    ]
    found = by_patient(rows, "dsc")
    assert found == pytest.approx({"b": 0.75, "a": 0.25, "c": np.nan}, nan_ok=True)
    assert known_mean(list(found.values())) == 0.5
    assert np.isnan(known_mean([]))
