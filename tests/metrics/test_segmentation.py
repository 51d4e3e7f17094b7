"""Overlap and surface distances against MedPy, MONAI and the goldens."""

import math

import medpy.metric.binary as medpy
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from monai.metrics import (
    compute_average_surface_distance,
    compute_dice,
    compute_hausdorff_distance,
    compute_surface_dice,
)
from scipy import ndimage

import crac
from common import golden
from crac.errors import InputError
from crac.metrics import average_surface_distance, surface_dice
from crac.metrics.segmentation import surface_scores

SPACINGS = {2: (0.7, 1.6), 3: (5.0, 0.8, 1.3)}


def blobs(shape, seed):
    """Two smooth masks that partly agree, some of them in pieces, some touching the edge."""
    rng = np.random.default_rng(seed)
    base, other = (ndimage.gaussian_filter(rng.normal(size=shape), 2.0) for _ in range(2))
    cut = np.quantile(base, 0.8)
    return base > cut, base + 0.5 * other > cut


def batched(mask):
    return torch.tensor(mask)[None, None]


@pytest.mark.parametrize("shape", [(40, 52), (16, 40, 44)])
@pytest.mark.parametrize("seed", range(4))
def test_against_medpy_and_monai(shape, seed):
    prediction, labels = blobs(shape, seed)
    spacing = SPACINGS[len(shape)]
    both = batched(prediction), batched(labels)
    assert crac.hd95(prediction, labels, spacing) == pytest.approx(medpy.hd95(prediction, labels, spacing), abs=1e-6)
    monai = compute_hausdorff_distance(*both, include_background=True, percentile=95, spacing=spacing)
    assert crac.hd95(prediction, labels, spacing, definition="directed_max") == pytest.approx(float(monai), abs=1e-4)

    assd = average_surface_distance(prediction, labels, spacing)
    assert assd == pytest.approx(medpy.assd(prediction, labels, spacing), abs=1e-6)
    monai = compute_average_surface_distance(*both, include_background=True, symmetric=True, spacing=spacing)
    assert assd == pytest.approx(float(monai), abs=1e-4)

    for tolerance in (0.0, 1.0, 2.5):
        monai = compute_surface_dice(*both, [tolerance], include_background=True, spacing=spacing)
        assert surface_dice(prediction, labels, spacing, tolerance) == pytest.approx(float(monai), abs=1e-6)

    pair = np.stack([~prediction, prediction]), np.stack([~labels, labels])
    got = crac.dice(prediction.astype(int), labels.astype(int), num_classes=2)
    assert got.tolist() == pytest.approx([medpy.dc(one, two) for one, two in zip(*pair, strict=True)])
    monai = compute_dice(*(torch.tensor(one)[None].float() for one in pair))
    assert got.tolist() == pytest.approx(monai[0].tolist(), abs=1e-6)


@pytest.mark.parametrize("name", ["metrics_a", "metrics_b"])
def test_golden_numbers(name):
    numbers = golden(name)
    prediction, labels = numbers["logits"].argmax(1), numbers["labels"]
    num_classes = numbers["logits"].shape[1]
    scores = crac.dice(torch.tensor(prediction), torch.tensor(labels), num_classes)
    np.testing.assert_allclose(scores[1:], numbers["dsc"], atol=1e-6)
    for spacing, key in (((1, 1, 1), "hd95_voxel"), (numbers["spacing"], "hd95_mm")):
        got = [crac.hd95(prediction == k, labels == k, spacing) for k in range(1, num_classes)]
        np.testing.assert_allclose(got, numbers[key], atol=1e-6)


@given(seed=st.integers(0, 1000))
def test_single_voxels_and_symmetry(seed):
    rng = np.random.default_rng(seed)
    masks = np.zeros((2, 5, 7, 6), dtype=bool)
    places = [tuple(rng.integers(0, masks.shape[1:])) for _ in range(2)]
    for mask, place in zip(masks, places, strict=True):
        mask[place] = True
    spacing = rng.uniform(0.5, 4, size=3)
    expected = math.dist(*(np.array(place) * spacing for place in places))
    for definition in ("pooled", "directed_max"):
        assert crac.hd95(masks[0], masks[1], spacing, definition) == pytest.approx(expected)
        assert crac.hd95(masks[1], masks[0], spacing, definition) == pytest.approx(expected)
    assert average_surface_distance(masks[0], masks[1], spacing) == pytest.approx(expected)


def test_empty_masks_follow_the_policy():
    full, nothing = np.ones((3, 4), dtype=bool), np.zeros((3, 4), dtype=bool)
    diagonal = math.hypot(3 * 2, 4 * 1.5)
    for policy, one_empty, both_empty in (
        ("nan", math.nan, math.nan),
        ("zero", 0, 0),
        ("diagonal", diagonal, 0),
        (50.0, 50, 0),
    ):
        for measure in (crac.hd95, average_surface_distance):
            assert measure(full, nothing, (2, 1.5), empty=policy) == pytest.approx(one_empty, nan_ok=True)
            assert measure(nothing, full, (2, 1.5), empty=policy) == pytest.approx(one_empty, nan_ok=True)
            assert measure(nothing, nothing, (2, 1.5), empty=policy) == pytest.approx(both_empty, nan_ok=True)
    assert surface_dice(full, nothing, (1, 1), 1, empty="zero") == 0
    assert surface_dice(nothing, nothing, (1, 1), 1, empty="zero") == 1
    absent = crac.dice(torch.zeros(4, dtype=torch.long), torch.zeros(4, dtype=torch.long), 3)
    assert absent[0] == 1
    assert torch.isnan(absent[1:]).all()
    assert crac.dice(torch.zeros(4, dtype=torch.long), torch.zeros(4, dtype=torch.long), 3, empty=1)[2] == 1


def test_tensors_and_arrays_give_the_same():
    prediction, labels = blobs((12, 20, 20), 0)
    expected = crac.hd95(prediction, labels, (1, 1, 1))
    assert crac.hd95(torch.tensor(prediction), torch.tensor(labels), torch.ones(3)) == expected


MASK = np.ones((3, 4), dtype=bool)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: crac.hd95(MASK, MASK, (1,)), "spacing"),
        (lambda: crac.hd95(MASK, MASK, (1, 0)), "spacing"),
        (lambda: crac.hd95(MASK, MASK, 1.5), "spacing must be 2 positive numbers, one per axis; got 1.5"),
        (lambda: crac.hd95(MASK, MASK, None), "spacing must be 2 positive numbers, one per axis; got None"),
        (lambda: crac.hd95(MASK, MASK, (1, 1), definition="max"), "pooled, directed_max"),
        (lambda: crac.hd95(MASK, MASK, (1, 1), empty="none"), "nan, zero, diagonal"),
        (lambda: crac.hd95(MASK, MASK.astype(int), (1, 1)), "boolean"),
        (lambda: crac.hd95(MASK, MASK[:2], (1, 1)), "same shape"),
        (lambda: average_surface_distance(MASK, MASK, (1, 1, 1)), "spacing"),
        (lambda: surface_dice(MASK, MASK, (1, 1), -1), "tolerance"),
        (lambda: surface_dice(MASK, MASK, (1, 1), 1, empty="diagonal"), "nan, zero"),
        (lambda: crac.dice(np.array([0, 3]), np.array([0, 1]), 3), "0..2"),
        (lambda: crac.dice(np.array([0.5]), np.array([1]), 2), "integers"),
        (lambda: crac.dice(np.array([0]), np.array([0, 1]), 2), "same shape"),
        (lambda: crac.dice(MASK, MASK, 2, empty="zero"), "empty must be one of nan, a number; got 'zero'"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(InputError, match=message):
        call()


@pytest.mark.parametrize("spacing", [0.1, 0.7, 1.1, 1.3])
def test_a_distance_of_the_tolerance_is_within_it(spacing):
    """Three voxels of 0.1 mm are 0.30000000000000004 mm."""
    prediction, labels = np.zeros((12, 3), bool), np.zeros((12, 3), bool)
    prediction[3:6], labels[6:9] = True, True
    prediction[4], labels[7] = False, False
    for voxels in (3, 6):
        exact = surface_dice(prediction, labels, (1, 1), voxels)
        assert surface_dice(prediction, labels, (spacing, spacing), spacing * voxels) == exact
        assert surface_dice(prediction, labels, (spacing, spacing), round(spacing * voxels, 3)) == exact
        assert surface_scores(prediction, labels, (spacing,) * 2, tolerance=round(spacing * voxels, 3))[2] == exact
