"""What is counted of a case."""

import numpy as np
import pytest
from tests.guarantees.volumes import CLASSES, patients

import crac
from crac.guarantees.case import check_case


def test_dice_of_a_case() -> None:
    for case in patients(4):
        predicted = case.probabilities.argmax(0)
        expected = crac.dice(predicted, case.labels, CLASSES)[1:].nanmean()
        assert check_case(case, CLASSES, "").counts.dice == pytest.approx(float(expected))
    empty = crac.Case(np.stack([np.ones((3, 3)), np.zeros((3, 3))]), np.zeros((3, 3), int), (1.0, 1.0))
    assert check_case(empty, 2, "").counts.dice == 1
