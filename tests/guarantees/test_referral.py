"""Doubts by hand, the flag's promise, and risk against coverage."""

import math

import numpy as np
import pytest
import torch
from tests.guarantees.volumes import CLASSES, patients

import crac
from crac.errors import InputError
from crac.guarantees.case import check_case, check_volume
from crac.guarantees.counts import Doubts
from crac.guarantees.referral import risk_coverage


def test_doubts_by_hand() -> None:
    second = np.array([[0.9, 0.8, 0.2], [0.1, 0.1, 0.0]])
    found = check_volume(np.stack([1 - second, second]), (1.0, 1.0), 2).counted(entropy=True).doubts()
    # Two voxels are predicted, 1.7 of them right; 2.1 are expected in all.
    assert found.expected_dice == pytest.approx(1 - (2 * 1.7 + 1) / (2 + 2.1 + 1), abs=1e-6)
    undecided = sum(p * (1 - p) for p in second.ravel())
    assert found.volume_uncertainty == pytest.approx(undecided / 3.1, abs=1e-6)
    entropy = [-(p * math.log(p) + (1 - p) * math.log(1 - p)) / math.log(2) for p in (0.9, 0.8)]
    assert found.boundary_entropy == pytest.approx(np.mean(entropy), abs=1e-3)


def test_nothing_predicted_and_nothing_expected_is_nothing_to_doubt() -> None:
    hot = torch.zeros(3, 4, 5, 6)
    hot[0] = 1
    sure = check_volume(hot, (1.0,) * 3, 3)
    assert sure.counted(entropy=True).doubts() == Doubts(expected_dice=0, volume_uncertainty=0, boundary_entropy=1)
    assert math.isnan(sure.counted().doubts().boundary_entropy)
    soft = torch.full((3, 4, 5, 6), 0.3)
    soft[0] = 0.4
    assert (
        check_volume(soft, (1.0,) * 3, 3).counted().doubts().expected_dice > 0.9
    )  # much is expected, nothing is predicted


@pytest.mark.parametrize("score", ["expected_dice", "boundary_entropy", "volume_uncertainty"])
def test_few_bad_cases_pass_without_a_flag(score: str) -> None:
    cases = patients(60)
    referral = crac.Referral(CLASSES, 0.1, score=score, acceptable=0.7).fit(cases)
    looks = [referral.predict(case.probabilities) for case in cases]
    bad = np.array([check_case(case, CLASSES, "").counts.dice < 0.7 for case in cases])
    flagged = np.array([look.flagged for look in looks])
    assert bad.mean() > 0.15
    allowed = 0.1 * 61 - 1
    assert (bad & ~flagged).sum() <= allowed
    # A higher threshold would let one more bad case pass than allowed.
    passing = np.array([look.doubt for look in looks])[bad]
    assert (passing <= referral.threshold).sum() > allowed
    assert all(("Dice below 0.7" in look.reason) == look.flagged for look in looks)


def test_more_doubtful_than_all_is_flagged_and_good_cases_need_no_flag() -> None:
    cases = patients(20)
    good = [case._replace(labels=case.probabilities.argmax(0)) for case in cases]
    referral = crac.Referral(CLASSES, 0.1).fit(good)
    assert referral.threshold == math.inf
    assert not any(referral.predict(case.probabilities).flagged for case in good)
    flat = np.full_like(cases[0].probabilities, 1 / 3)
    look = referral.predict(flat)
    assert look.flagged
    assert "larger than in any of the 20 calibration patients" in look.reason
    few = crac.Referral(CLASSES, 0.1).fit(cases[:3])
    assert math.isnan(few.threshold)
    assert few.reason == "3 calibration patients cannot promise a risk of 0.1; at least 9 are needed"
    assert few.predict(flat).flagged


def test_risk_coverage_by_hand() -> None:
    found = risk_coverage([0.3, 0.1, 0.2], [0.9, 0.1, 0.5])
    np.testing.assert_allclose(found.coverage, [1 / 3, 2 / 3, 1])
    np.testing.assert_allclose(found.risk, [0.1, 0.3, 0.5])
    assert found.area == found.best == pytest.approx(0.3)
    assert found.chance == pytest.approx(0.5)
    reverse = risk_coverage([0.1, 0.3, 0.2], [0.9, 0.1, 0.5])
    assert reverse.area == pytest.approx(np.mean([0.9, 0.7, 0.5]))
    assert risk_coverage([1, 1, 1], [0.9, 0.1, 0.5]).area == pytest.approx(0.5)  # knows nothing
    cases = patients(30)
    curve = crac.Referral(CLASSES, 0.1).fit(cases).curve()
    losses = [1 - check_case(case, CLASSES, "").counts.dice for case in cases]
    assert curve.chance == pytest.approx(np.mean(losses))
    assert curve.risk[-1] == pytest.approx(curve.chance)
    assert curve.best < curve.area


def test_bad_arguments() -> None:
    with pytest.raises(InputError, match="score must be one of expected_dice, boundary_entropy, volume_uncertainty"):
        crac.Referral(2, score="size")
    with pytest.raises(InputError, match="acceptable must be a number"):
        crac.Referral(2, acceptable=2)


@pytest.mark.parametrize(
    ("doubt", "loss"), [([0.1, 0.2], [0.5]), ([0.1], [0.5, 0.6]), ([], []), ([[0.1, 0.2]], [[0.5, 0.6]])]
)
def test_doubt_and_loss_belong_together(doubt: list[float], loss: list[float]) -> None:
    with pytest.raises(InputError, match="doubt and loss must hold one number for each of at least one case; got"):
        risk_coverage(doubt, loss)
