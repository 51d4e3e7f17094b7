"""Resampling and windows."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from crac.data.grid import linear_weights, resample, resample_labels, window
from crac.errors import InputError

sizes = st.integers(1, 70)


@given(source=sizes, target=sizes)
def test_weights_average_and_keep_the_field_of_view(source: int, target: int) -> None:
    weights = linear_weights(source, target)
    assert (weights >= 0).all()
    torch.testing.assert_close(weights.sum(1), torch.ones(target))
    if source >= 2 and target >= 2:
        # A mirrored signal resamples to the mirrored result: no half-voxel shift.
        torch.testing.assert_close(weights, weights.flip(0, 1))


@pytest.mark.parametrize("shape", [(224, 224), (100, 300), (31, 17)])
def test_agrees_with_torch_interpolate(shape: tuple[int, int]) -> None:
    image = torch.rand(2, 3, 216, 256)
    expected = F.interpolate(image, shape, mode="bilinear", antialias=True, align_corners=False)
    torch.testing.assert_close(resample(image, (3, *shape)), expected, atol=1e-4, rtol=1e-4)


def test_agrees_with_torch_interpolate_in_3d() -> None:
    image = torch.rand(1, 2, 9, 20, 30)
    expected = F.interpolate(image, (12, 33, 31), mode="trilinear", align_corners=False)
    torch.testing.assert_close(resample(image, (12, 33, 31)), expected, atol=1e-4, rtol=1e-4)


@given(seed=st.integers(0, 99), shape=st.tuples(sizes, sizes, sizes))
def test_labels_are_never_mixed(seed: int, shape: tuple[int, int, int]) -> None:
    labels = np.random.default_rng(seed).choice(np.array([0, 2, 7], dtype=np.uint8), (5, 6, 7))
    out = resample_labels(labels, shape)
    assert out.shape == shape
    assert out.dtype == np.uint8
    assert set(np.unique(out)) <= set(np.unique(labels))


@given(source=sizes, target=sizes, start=st.none() | st.integers(0, 60))
def test_window_reads_as_much_as_it_fills_inside_both(source: int, target: int, start: int | None) -> None:
    start = None if start is None else min(start, max(source - target, 0))
    read, fill = window(source, target, start)
    assert read.stop - read.start == fill.stop - fill.start == min(source, target)
    assert 0 <= read.start <= read.stop <= source
    assert 0 <= fill.start <= fill.stop <= target
    if start is not None and target < source:
        assert read.start == start


def test_centre_window_of_the_paper() -> None:
    assert window(224, 192) == (slice(16, 208), slice(0, 192))


def test_absurd_sizes_are_refused() -> None:
    from crac.data.grid import check_size

    with pytest.raises(InputError, match="too large"):
        check_size((30_000, 30_000, 30_000))
