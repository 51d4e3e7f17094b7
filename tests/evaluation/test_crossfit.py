"""What calibration gains on patients left out."""

import pytest
import torch
from tests.evaluation.volumes import NAMES, volume

from crac.calibration import build_calibrator
from crac.errors import InputError
from crac.evaluation import LoadedCases, Protocol, measure
from crac.evaluation.crossfit import calibrated_case, cross_fit


def test_a_model_that_is_calibrated_already_is_left_as_it_is() -> None:
    """Labels drawn from the model's own probabilities leave nothing to gain on patients left out."""
    generator = torch.Generator().manual_seed(1)
    cases = []
    for number in range(8):
        case = volume(f"case {number}", (4, 20, 24), seed=number)
        logits = case.scores / 2
        drawn = torch.multinomial(logits.softmax(0).flatten(1).T, 1, generator=generator).view(case.labels.shape)
        cases.append(case._replace(scores=logits, labels=drawn))
    protocol = Protocol(NAMES, masks=["all"])
    gains = cross_fit(LoadedCases(cases), lambda: build_calibrator("class_region", 3), protocol, folds=4).gains()
    assert not gains[0].shown
    assert abs(gains[0].difference.estimate) < 0.01
    sharp = LoadedCases([case._replace(scores=3 * case.scores) for case in cases])
    gains = cross_fit(sharp, lambda: build_calibrator("temperature", 3), protocol, folds=4).gains()
    assert gains[0].shown
    assert gains[0].measure == "nll[all]"


def test_one_patient_is_not_enough() -> None:
    alone = LoadedCases([volume("one")._replace(patient="p"), volume("two")._replace(patient="p")])
    with pytest.raises(InputError, match="which needs at least 2; got 1"):
        cross_fit(alone, lambda: build_calibrator("temperature", 3), Protocol(NAMES))


@pytest.mark.parametrize("name", ["identity", "class_region", "class_region_affine"])
def test_what_calibrated_probabilities_round_to_0_is_still_wrong(name: str) -> None:
    """Logits of 200 leave e^-200 to the right class; a likelihood of rounded probabilities would stop at a bound."""
    case = volume("one")
    sharp = case._replace(scores=50 * case.scores)
    calibrator = build_calibrator(name, 3)
    found = calibrated_case(calibrator, sharp)
    assert found.from_logits
    torch.testing.assert_close(found.scores, sharp.scores.log_softmax(0))
    assert found.scores.min() < -120
    assert torch.equal(found.scores.argmax(0), sharp.scores.argmax(0))
    protocol = Protocol(NAMES, masks=["all"])
    before, after = (measure(one, protocol).row["nll[all]"] for one in (sharp, found))
    assert after == pytest.approx(before)
    rounded = measure(found._replace(scores=found.scores.softmax(0), from_logits=False), protocol).row["nll[all]"]
    assert rounded < 0.9 * before


def test_calibrated_probabilities_stay_probabilities() -> None:
    found = calibrated_case(build_calibrator("class_region", 3), case := volume("one", from_logits=False))
    assert not found.from_logits
    torch.testing.assert_close(found.scores, case.scores)
