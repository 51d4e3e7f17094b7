"""Margins against distance maps of the whole image, and every edge."""

import math

import numpy as np
import pytest
import torch
from scipy import ndimage
from tests.guarantees.volumes import CLASSES, patients

import crac


def sure(winners: np.ndarray, classes: int = 2) -> np.ndarray:
    """Probabilities of a model that is quite sure of a map."""
    hot = np.stack([winners == number for number in range(classes)])
    return np.where(hot, 0.9, 0.1 / (classes - 1)).astype(np.float32)


def reference(case: crac.Case, number: int) -> tuple[float, float]:
    predicted, labelled = case.probabilities.argmax(0) == number, case.labels == number
    out = ndimage.distance_transform_edt(~predicted, case.spacing)[labelled] if predicted.any() else np.array([np.inf])
    deep = ndimage.distance_transform_edt(predicted, case.spacing)[predicted & ~labelled]
    return float(out.max(initial=0)), float(deep.max(initial=0))


@pytest.mark.parametrize("shape", [(10, 14, 12), (16, 18)])
def test_quantiles_of_exact_distances(shape: tuple[int, ...]) -> None:
    spacing = (2.5, 1.0, 0.7)[: len(shape)]
    cases = patients(19, shape=shape, spacing=spacing)
    margin = crac.Margin(CLASSES, alpha=0.2).fit(cases)
    assert math.isnan(margin.millimetres[0])
    for number in (1, 2):
        out, deep = zip(*(reference(case, number) for case in cases), strict=True)
        assert float(margin.millimetres[number]) == pytest.approx(sorted(out)[15])  # the 16th of 19: ceil(20 * 0.8)
        assert float(margin.inwards[number]) == pytest.approx(sorted(deep)[15])


def test_grown_and_shrunken_contours_keep_the_promise_on_the_cases_themselves() -> None:
    cases = patients(40)
    margin = crac.Margin(CLASSES, alpha=0.2).fit(cases)
    held, within = np.zeros(CLASSES), np.zeros(CLASSES)
    for case in cases:
        grown, core = (part(case.probabilities, case.spacing) for part in (margin, margin.core))
        predicted = case.probabilities.argmax(0)
        for number in (1, 2):
            own = case.labels == number
            held[number] += (grown[number] | ~own).all()
            within[number] += (own | ~core[number]).all()
            assert grown[number][predicted == number].all()
            assert not core[number][predicted != number].any()
            distance = ndimage.distance_transform_edt(predicted != number, case.spacing)
            expected = distance <= float(margin.millimetres[number]) + 1e-9
            np.testing.assert_array_equal(grown[number], expected & (predicted == number).any())
        assert not grown[0].any()
        assert not core[0].any()
    assert (held[1:] >= 0.8 * 40).all()
    assert (within[1:] >= 0.8 * 40).all()


def block(shape: tuple[int, ...], *ends: tuple[int, int]) -> np.ndarray:
    out = np.zeros(shape, dtype=np.int64)
    out[tuple(slice(*end) for end in ends)] = 1
    return out


def test_known_distances() -> None:
    labels = block((9, 9), (2, 7), (3, 6))
    cases = [crac.Case(sure(block((9, 9), (2, 7), (3, 5))), labels, (3.0, 2.0)) for _ in range(9)]
    margin = crac.Margin(2, 0.1).fit(cases)
    assert margin.millimetres.tolist()[1] == 2  # one column to the right
    assert margin.inwards.tolist()[1] == 0
    wide = crac.Margin(2, 0.1).fit([case._replace(probabilities=sure(block((9, 9), (0, 9), (3, 6)))) for case in cases])
    # Two rows too many on both ends, at the edges of the image, which is no boundary: the way out is sideways.
    assert wide.millimetres.tolist()[1] == 0
    assert wide.inwards.tolist()[1] == 4
    assert not wide.core(cases[0].probabilities, (3.0, 2.0))[1].any()


def test_an_empty_prediction_is_infinitely_far() -> None:
    labels = block((6, 6), (2, 4), (2, 4))
    good = [crac.Case(sure(labels), labels, (1.0, 1.0)) for _ in range(30)]
    empty = crac.Case(sure(np.zeros_like(labels)), labels, (1.0, 1.0))
    assert crac.Margin(2, 0.1).fit([*good, empty]).millimetres[1] == 0  # one of 31 may be missed
    lost = crac.Margin(2, 0.1).fit([*good, *[empty] * 6])
    assert lost.millimetres[1] == math.inf
    assert lost.inwards[1] == 0
    assert lost(empty.probabilities, (1.0, 1.0))[1].all()  # no margin suffices but the whole image
    assert not crac.Margin(2, 0.1).fit(good)(empty.probabilities, (1.0, 1.0)).any()  # nothing to grow


def test_a_prediction_that_fills_the_image_has_no_core() -> None:
    labels = block((6, 6), (2, 4), (2, 4))
    full = crac.Case(sure(np.ones_like(labels)), labels, (1.0, 1.0))
    margin = crac.Margin(2, 0.1).fit([full] * 12)
    assert margin.inwards[1] == math.inf
    assert margin.millimetres[1] == 0
    assert not margin.core(full.probabilities, full.spacing).any()


def test_absent_classes_and_too_few_patients() -> None:
    cases = patients(12)
    without = [case._replace(labels=np.where(case.labels == 2, 0, case.labels)) for case in cases]
    mixed = crac.Margin(CLASSES, 0.1).fit([*cases, *(c._replace(patient=f"{c.patient}b") for c in without)])
    assert mixed.patients.tolist() == [0, 24, 12]
    assert mixed.millimetres[2] == crac.Margin(CLASSES, 0.1).fit(cases).millimetres[2]
    absent = crac.Margin(CLASSES, 0.1).fit(without)
    assert absent.millimetres.isnan().tolist() == [True, False, True]
    assert "no calibration patient has it" in absent.reasons[2]
    few = crac.Margin(CLASSES, 0.1).fit(cases[:8])
    assert few.millimetres.isnan().all()
    assert few.reasons[1] == "8 calibration patients cannot promise a risk of 0.1; at least 9 are needed"
    grown = few(torch.from_numpy(cases[0].probabilities), cases[0].spacing)
    assert isinstance(grown, torch.Tensor)
    assert grown[1:].all()
