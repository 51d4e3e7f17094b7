"""What calibration gains on patients left out."""

import pytest
import torch
from tests.evaluation.volumes import NAMES, volume

from crac.calibration import build_calibrator
from crac.errors import InputError
from crac.evaluation import LoadedCases, Protocol
from crac.evaluation.crossfit import cross_fit


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
