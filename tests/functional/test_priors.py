import numpy as np
import pytest
import torch
from hypothesis import given

import reference
from crac.functional import neighbourhood_proportions, region_map
from strategies import label_maps


@given(label_maps(max_classes=8), label_maps.borders)
def test_equals_brute_force_and_sums_to_one(drawn, border):
    labels, classes = drawn
    prior = neighbourhood_proportions(torch.from_numpy(labels), classes, border)
    assert prior.dtype == torch.float32
    torch.testing.assert_close(prior.sum(1), torch.ones(labels.shape))
    expected = reference.proportions(labels, classes, border)
    np.testing.assert_allclose(prior.numpy(), expected, atol=1e-6)


@given(label_maps(max_classes=4), label_maps.borders)
def test_ignored_pixels_are_not_counted(drawn, border):
    labels, classes = drawn
    ignore = classes - 1
    prior = neighbourhood_proportions(torch.from_numpy(labels), classes, border, ignore_index=ignore)
    expected = reference.proportions(labels, classes, border, ignore=ignore)
    np.testing.assert_allclose(prior.numpy(), expected, atol=1e-6)
    total = prior.sum(1)
    assert torch.all(((total - 1).abs() < 1e-6) | (total == 0))


@pytest.mark.parametrize("kernel_size", [1, 3, 5, 7])
@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 3, 9), (1, 2, 5, 6)])
def test_any_odd_kernel_also_larger_than_the_image(kernel_size, shape):
    labels = torch.randint(3, shape)
    prior = neighbourhood_proportions(labels, 3, kernel_size=kernel_size)
    expected = reference.proportions(labels.numpy(), 3, radius=kernel_size // 2)
    np.testing.assert_allclose(prior.numpy(), expected, atol=1e-6)


def test_counts_do_not_overflow_a_byte():
    # 7 x 7 x 7 = 343 pixels of one class
    assert torch.all(neighbourhood_proportions(torch.ones(1, 9, 9, 9, dtype=torch.uint8), 2, kernel_size=7)[:, 1] == 1)


@pytest.mark.parametrize(
    ("labels", "options", "sentence"),
    [
        (torch.zeros(1, 4, 4), {}, "labels must hold integers; got dtype torch"),
        (torch.zeros(4, 4, dtype=torch.int64), {}, r"labels must have shape .*; got \(4, 4\)"),
        (torch.zeros(1, 4, 4, dtype=torch.int64), {"kernel_size": 4}, "kernel_size must be an odd number .* got 4"),
        (
            torch.zeros(1, 4, 4, dtype=torch.int64),
            {"border": "zeros"},
            "border must be one of replicate, background; got 'zeros'",
        ),
    ],
)
def test_bad_input(labels, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        neighbourhood_proportions(labels, 2, **options)


@pytest.mark.parametrize(("classes", "ignore_index"), [(300, None), (256, -1), (60, 256), (60, 300)])
def test_labels_of_a_byte_are_compared_as_numbers(classes, ignore_index):
    labels = torch.randint(min(classes, 256), (2, 7, 8), generator=torch.Generator().manual_seed(0))
    labels[:, :4, :4], labels[0, 5, 5] = 44, 0
    for function, options in ((neighbourhood_proportions, {"num_classes": classes}), (region_map, {})):
        found = function(labels.to(torch.uint8), ignore_index=ignore_index, **options)
        assert torch.equal(found, function(labels, ignore_index=ignore_index, **options))
