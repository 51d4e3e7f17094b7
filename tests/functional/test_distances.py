import numpy as np
import pytest
import torch
from scipy.ndimage import distance_transform_edt

from crac.functional.distances import boundary_weights, squared_distance, within


@pytest.mark.parametrize("shape", [(3, 40, 33), (2, 1, 50), (2, 14, 15, 16)])
@pytest.mark.parametrize("density", [0.02, 0.5, 0.98])
@pytest.mark.parametrize("limit", [3, 11])
def test_equals_scipy_up_to_the_limit(shape, density, limit):
    mask = torch.rand(shape) < density
    mask[..., 0, 0] = False  # scipy leaves the distance to nothing undefined
    found = squared_distance(mask, mask.ndim - 1, limit)
    exact = np.stack([distance_transform_edt(image) for image in mask.numpy()]) ** 2
    np.testing.assert_array_equal(found.numpy(), np.minimum(np.rint(exact), (limit + 1) ** 2))


def test_a_mask_without_an_outside_has_no_boundary():
    assert torch.all(boundary_weights(torch.ones(1, 8, 8, dtype=torch.bool), 2) == torch.tensor(0.01))
    assert torch.all(boundary_weights(torch.zeros(1, 8, 8, dtype=torch.bool), 2) == torch.tensor(0.01))


def test_weights_fall_off_linearly_on_both_sides():
    mask = torch.zeros(1, 3, 40, dtype=torch.bool)
    mask[..., 20:] = True
    weights = boundary_weights(mask, 2, reach=10, largest=1.0, smallest=0.01)[0, 1]
    expected = [max(10 - min(abs(20 - x), 10), 0) / 10 + 0.01 for x in range(20)]
    expected += [max(10 - min(x - 20, 10), 0) / 10 + 0.01 for x in range(20, 40)]
    torch.testing.assert_close(weights, torch.tensor(expected))


def test_a_class_nowhere_two_pixels_deep_is_left_out():
    mask = torch.zeros(1, 9, 9, dtype=torch.bool)
    mask[0, 4, 2:7] = True
    assert torch.all(boundary_weights(mask, 2) == torch.tensor(0.01))


@pytest.mark.parametrize(("shape", "spacing"), [((3, 40, 33), None), ((2, 9, 30, 31), (3.0, 1.25, 0.7))])
@pytest.mark.parametrize("distance", [0.5, 2.5, 5.0])
def test_within_a_distance_is_scipys(shape, spacing, distance):
    mask = torch.rand(shape) > 0.998
    mask[0] = False  # an image without any pixel of the mask has none near it
    found = within(mask, mask.ndim - 1, distance, spacing)
    assert not found[0].any()
    for image, near in zip(mask[1:].numpy(), found[1:].numpy(), strict=True):
        assert image.any()
        np.testing.assert_array_equal(near, distance_transform_edt(~image, sampling=spacing) <= distance + 1e-9)
    assert not within(torch.zeros(shape, dtype=torch.bool), mask.ndim - 1, distance).any()


def test_strips_are_no_boundaries() -> None:
    mask = torch.rand(2, 5, 200, 7) > 0.999
    mask[0, 2, 63:66, 3] = True
    found = within(mask, 3, 5.0)
    for image, near in zip(mask.numpy(), found.numpy(), strict=True):
        np.testing.assert_array_equal(near, distance_transform_edt(~image) <= 5)
