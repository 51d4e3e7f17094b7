"""Promises in words."""

import numpy as np

import crac
from crac.guarantees.words import promises


def test_whole_image_and_missed_organs_in_words() -> None:
    labels = np.eye(5, dtype=np.int64)
    sure = np.stack([np.ones((5, 5)), np.zeros((5, 5))])
    said = promises(crac.Guarantees(2, 0.1).fit([crac.Case(sure, labels, (1.0, 1.0))] * 20))
    assert said[0] == "1: only the whole image is sure to hold 90 % of it (20 patients)"
    assert "1: no grown contour holds all of it in 90 % of patients (20 patients)" in said
