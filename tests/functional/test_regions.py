import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import reference
from crac.functional import region_map
from strategies import label_maps


@given(label_maps(max_classes=8), label_maps.borders)
def test_equals_brute_force(drawn, border):
    labels, _ = drawn
    np.testing.assert_array_equal(region_map(torch.from_numpy(labels), border), reference.regions(labels, border))


@given(label_maps(max_classes=4), label_maps.borders, st.sampled_from([(1, 2), (2,), (1, 3, 4)]))
def test_distance_bands_and_ignored_pixels(drawn, border, radii):
    labels, classes = drawn
    found = region_map(torch.from_numpy(labels), border, radii, ignore_index=classes - 1)
    np.testing.assert_array_equal(found, reference.regions(labels, border, radii, ignore=classes - 1))


@pytest.mark.parametrize("value", [0, 1, 7])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32, torch.int64])
def test_uniform_map_has_no_outer_pixel(value, dtype):
    assert not region_map(torch.full((2, 5, 6), value, dtype=dtype)).any()


def test_patches_whose_label_sum_divides_by_nine_are_found():
    # Where a float comparison with the mean loses pixels: on a large map of several discs every one is found.
    rows, columns = torch.meshgrid(torch.arange(192), torch.arange(192), indexing="ij")
    labels = torch.zeros(192, 192, dtype=torch.int64)
    for value, (row, column, radius) in enumerate([(60, 60, 40), (120, 110, 45), (70, 140, 30)], start=1):
        labels[(rows - row) ** 2 + (columns - column) ** 2 <= radius**2] = value
    found = region_map(labels[None])[0].bool()
    np.testing.assert_array_equal(found, reference.regions(labels[None].numpy())[0].astype(bool))


@pytest.mark.parametrize("radii", [(), (0,), (2, 1), (1, 1)])
def test_bad_radii(radii):
    with pytest.raises(ValueError, match="radii must be growing whole numbers of at least 1; got"):
        region_map(torch.zeros(1, 3, 3, dtype=torch.int64), radii=radii)
