"""Intervals of volumes: closed forms and every edge."""

import math

import numpy as np
import pytest
import torch
from tests.guarantees.volumes import CLASSES, patients

import crac
from crac.errors import InputError
from crac.guarantees.volume import ends


def test_estimate_and_interval_by_hand() -> None:
    second = torch.full((1, 2, 2, 5), 0.5)
    case = crac.Case(torch.cat([1 - second, second]), torch.ones(2, 2, 5, dtype=torch.int64), (10.0, 10.0, 20.0), "p")
    cases = [case._replace(patient=str(number)) for number in range(9)]
    # 20 voxels of 2 ml: 20 ml expected, 40 true; undecided 20 * 0.25 * 2 = 10 ml, and a voxel more: sqrt(12).
    interval = crac.VolumeInterval(num_classes=2, alpha=0.1).fit(cases)
    assert interval.below[1] == interval.above[1] == pytest.approx(20 / math.sqrt(12))
    found = interval.predict(case.probabilities, case.spacing)
    assert found.shape == (2, 3)
    np.testing.assert_allclose(found[1], [20, 0, 40])
    assert found[0, 0] == pytest.approx(20)
    assert found[0, 1:].isnan().all()
    shorter = interval.predict(case.probabilities, (5.0, 10.0, 20.0))  # half the voxel: 10 ml, sqrt(5 + 1)
    np.testing.assert_allclose(shorter[1], [10, 0, 20])  # no more than the image holds
    by_estimate = crac.VolumeInterval(2, 0.1, scale="estimate").fit(cases)
    assert by_estimate.above[1] == pytest.approx(20 / 22)


@pytest.mark.parametrize("scale", ["uncertainty", "estimate"])
@pytest.mark.parametrize("shape", [(10, 14, 12), (16, 18)])
def test_the_interval_holds_the_rank_that_was_promised(scale: str, shape: tuple[int, ...]) -> None:
    spacing = (2.0, 1.0, 1.5)[: len(shape)]
    cases = patients(29, shape=shape, spacing=spacing)
    interval = crac.VolumeInterval(CLASSES, 0.2, scale=scale).fit(cases)
    above, below = np.zeros((2, CLASSES))
    for case in cases:
        found = interval.predict(case.probabilities, spacing)
        assert isinstance(found, np.ndarray)
        voxel = np.prod(spacing) / 10 ** len(shape)
        true = np.bincount(case.labels.ravel(), minlength=CLASSES) * voxel
        below += true < found[:, 1] - 1e-12
        above += true > found[:, 2] + 1e-12
        assert (found[1:, 1] <= found[1:, 0]).all()
        assert (found[1:, 0] <= found[1:, 2]).all()
        np.testing.assert_allclose(found[:, 0], case.probabilities.reshape(CLASSES, -1).sum(1) * voxel, rtol=1e-5)
    # A new patient is the 30th: a tenth of 30 may lie on each side, so that two of these 29 and the new one do.
    for missed, factor in ((below, interval.below), (above, interval.above)):
        # Fewer only where an end would leave out the estimate, and stays at it.
        assert all(
            count == 2 or (count < 2 and reach == 0) for count, reach in zip(missed[1:], factor[1:], strict=True)
        )


def test_unbounded_where_nothing_can_be_promised() -> None:
    cases = patients(12)
    few = crac.VolumeInterval(CLASSES, 0.1).fit(cases[:8])
    found = few.predict(cases[0].probabilities, cases[0].spacing)
    assert found[1:, 1].tolist() == [0, 0]
    assert found[1:, 2].tolist() == [math.inf, math.inf]
    assert np.isfinite(found[:, 0]).all()
    assert "at least 9 are needed" in few.reasons[1]
    assert crac.VolumeInterval(CLASSES, 0.9).fit(cases[:1]).above.isnan().all()
    absent = crac.VolumeInterval(CLASSES, 0.1).fit([c._replace(labels=c.labels * (c.labels == 1)) for c in cases])
    assert absent.predict(cases[0].probabilities, cases[0].spacing)[2, 2] == math.inf
    assert "no calibration patient has it" in absent.reasons[2]


def test_a_patient_without_the_class_has_none_of_it() -> None:
    cases = patients(20)
    mixed = [c._replace(labels=c.labels * (c.labels == 1)) if i % 2 else c for i, c in enumerate(cases)]
    interval = crac.VolumeInterval(CLASSES, 0.4).fit(mixed)
    assert interval.patients.tolist() == [0, 20, 20]
    plain = crac.VolumeInterval(CLASSES, 0.4).fit(cases)
    assert interval.below[2] > plain.below[2]  # for the model sees it there


def test_a_sure_and_empty_prediction() -> None:
    hot = np.zeros((2, 5, 5), dtype=np.float16)
    hot[0] = 1
    cases = [crac.Case(hot, np.zeros((5, 5), dtype=np.int64), (1.0, 1.0)) for _ in range(19)]
    one = crac.Case(hot, np.eye(5, dtype=np.int64), (1.0, 1.0))
    interval = crac.VolumeInterval(2, 0.2).fit([*cases, one])
    np.testing.assert_array_equal(interval.predict(hot, (1.0, 1.0))[1], [0, 0, 0])
    with pytest.raises(InputError, match="scale must be one of uncertainty, estimate; got 'none'"):
        crac.VolumeInterval(2, scale="none")
    with pytest.raises(InputError, match="spacing must be 2 positive numbers"):
        interval.predict(hot, (1.0, 1.0, 1.0))


def test_an_interval_leans_to_the_side_on_which_estimates_err() -> None:
    rng = np.random.default_rng(0)
    half = np.full((2, 10, 10), 0.5, dtype=np.float32)  # 50 are expected, 25 to 35 are there
    cases = [
        crac.Case(half, (np.arange(100) < rng.integers(25, 36)).reshape(10, 10).astype(int), (10.0, 10.0))
        for _ in range(99)
    ]
    estimate, low, high = crac.VolumeInterval(2, 0.1).fit(cases).predict(half, (10.0, 10.0))[1]
    true = sorted(int(case.labels.sum()) for case in cases)
    assert (estimate, high) == (50, 50)
    assert low == pytest.approx(true[4])  # the fifth of 99: half of ten in a hundred lie below it
    few = crac.VolumeInterval(2, 0.1).fit(cases[:18])
    assert few.below[1] == few.above[1]  # eighteen cannot be divided


@pytest.mark.parametrize("patients", [9, 19, 60])
def test_both_ends_together_keep_the_risk_with_skewed_errors(patients: int) -> None:
    rng = np.random.default_rng(patients)
    missed = []
    for _ in range(2000):
        errors = rng.exponential(1.0, patients + 1) - 0.3  # mostly too small, now and then by far
        down, up = ends({str(number): [error] for number, error in enumerate(errors[:-1])}, 0.1, "mean")
        missed.append(not -down <= errors[-1] <= up)
    allowed = np.floor(0.1 * (patients + 1)) / (patients + 1)
    assert np.mean(missed) <= allowed + 3 * np.sqrt(allowed / 2000)
    assert np.mean(missed) >= allowed - 3 * np.sqrt(allowed / 2000)
