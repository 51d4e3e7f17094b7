"""Plane by plane or all at once, probabilities come back to the same place with the same values."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.models.blobs import oblique

from crac.data import Geometry, Intensity, Recipe
from crac.data.grid import resample, window

UNIT = (Intensity(method="window", low=0, high=1),)
side = st.one_of(st.none(), st.integers(1, 14))
sides = st.tuples(side, side, side)
shapes = st.tuples(st.integers(1, 12), st.integers(1, 12), st.integers(1, 12))


def reference(recipe: Recipe, array: np.ndarray, geometry: Geometry) -> np.ndarray:
    """The whole at once: pad with background, resample, turn."""
    axes, flips = recipe.axes(geometry)
    resampled = recipe.resampled_shape(geometry)
    full = np.zeros((len(array), *resampled), dtype=np.float32)
    full[0] = 1
    windows = [window(voxels, crop or voxels) for voxels, crop in zip(resampled, recipe.crop, strict=True)]
    read, fill = zip(*windows, strict=True)
    full[(slice(None), *read)] = array[(slice(None), *fill)]
    original = tuple(geometry.shape[axis] for axis in axes)
    back = (
        resample(torch.from_numpy(full), original).numpy().transpose(0, *(int(axis) + 1 for axis in np.argsort(axes)))
    )
    return np.flip(back, tuple(axis + 1 for axis in flips))


@settings(max_examples=150)
@given(
    shape=shapes, size=sides, crop=sides, axis=st.sampled_from([0, 1, 2]), turned=st.booleans(),
    orientation=st.sampled_from(["stored", "canonical"]), seed=st.integers(0, 99), cuts=st.lists(st.integers(1, 13)),
)  # fmt: skip
def test_in_pieces_as_a_whole(
    shape: tuple[int, int, int], size: tuple[int | None, ...], crop: tuple[int | None, ...], axis: int, turned: bool,
    orientation: str, seed: int, cuts: list[int],
) -> None:  # fmt: skip
    recipe = Recipe(name="r", orientation=orientation, slice_axis=axis, size=size, crop=crop, intensity=UNIT)
    affine = oblique() if turned else np.diag([-1.0, -2.0, 3.0, 1.0])
    geometry = Geometry.of(shape, affine)
    array = torch.from_numpy(
        np.random.default_rng(seed).random((3, *recipe.prepared_shape(geometry)), dtype=np.float32)
    )
    restoration = recipe.restoration(geometry)
    whole = restoration.whole(array)
    np.testing.assert_allclose(whole.numpy(), reference(recipe, array.numpy(), geometry), atol=2e-6)
    np.testing.assert_array_equal(whole.numpy(), recipe.invert(array.numpy(), geometry))
    stops = sorted({cut for cut in cuts if cut < array.shape[1]})
    pieces = torch.full_like(whole, torch.nan)
    for where, plane in restoration.planes(array.tensor_split(stops, 1)):
        assert pieces[:, *where].isnan().all()  # each voxel comes once
        pieces[:, *where] = plane
    assert torch.equal(pieces, whole)  # to the last bit, however the slabs are cut


def test_all_that_comes_is_taken() -> None:
    """Planes that only padded the image are read to the end, so that whoever makes them can finish."""
    recipe = Recipe(name="r", orientation="stored", crop=(9, None, None), intensity=UNIT)
    ended = []

    def slabs():
        for _ in range(9):
            yield torch.ones(2, 1, 4, 4)
        ended.append(True)

    assert len(list(recipe.restoration(Geometry.of((4, 4, 3), np.eye(4))).planes(slabs()))) == 3
    assert ended


@pytest.mark.parametrize("shape", [(64, 70, 33)])
def test_real_sizes_too(shape: tuple[int, int, int]) -> None:
    recipe = Recipe(name="r", orientation="canonical", spacing=(2.5, 1.7, 1.7), crop=(30, 40, None), intensity=UNIT)
    geometry = Geometry.of(shape, oblique())
    array = np.random.default_rng(0).random((4, *recipe.prepared_shape(geometry)), dtype=np.float32)
    np.testing.assert_allclose(recipe.invert(array, geometry), reference(recipe, array, geometry), atol=2e-6)
