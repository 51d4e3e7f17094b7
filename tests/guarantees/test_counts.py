"""What is counted of a case."""

import numpy as np
import pytest
import torch
from tests.guarantees.volumes import CLASSES, patients

import crac
from crac.guarantees.case import check_case
from crac.guarantees.counts import VolumeCounter


def test_dice_of_a_case() -> None:
    for case in patients(4):
        predicted = case.probabilities.argmax(0)
        expected = crac.dice(predicted, case.labels, CLASSES)[1:].nanmean()
        assert check_case(case, CLASSES, "").counts.dice == pytest.approx(float(expected))
    empty = crac.Case(np.stack([np.ones((3, 3)), np.zeros((3, 3))]), np.zeros((3, 3), int), (1.0, 1.0))
    assert check_case(empty, 2, "").counts.dice == 1


def test_entropy_of_what_rounding_left_below_0_is_that_of_0() -> None:
    counter = VolumeCounter(2, (1, 2), entropy=True)
    counter.add((slice(None),), torch.tensor([[-1e-7, 0.5], [1 + 1e-7, 0.5]]))
    assert counter.doubts().boundary_entropy == pytest.approx(0, abs=1e-4)
