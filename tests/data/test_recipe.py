"""Recipes: what they give, and that they can be undone."""

import itertools

import nibabel as nib
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from tests.data.grids import PERCENTILE, RECIPES, affine_of

from crac.data.recipe import Geometry, Intensity, Recipe
from crac.data.recipes import ACDC, FLARE, change_recipe, spacing_recipe
from crac.errors import InputError

CODES = [
    "".join(axes[index] for index in order)
    for axes in itertools.product("RL", "AP", "SI")
    for order in itertools.permutations(range(3))
]


def ball(shape: tuple[int, int, int]) -> np.ndarray:
    axes = np.meshgrid(*(np.linspace(-1, 1, size) for size in shape), indexing="ij")
    distance = np.sqrt(sum(axis**2 for axis in axes))
    return (distance < 0.75).astype(np.uint8) + (distance < 0.45)


def dice(first: np.ndarray, second: np.ndarray, value: int) -> float:
    return 2 * ((first == value) & (second == value)).sum() / ((first == value).sum() + (second == value).sum())


@pytest.mark.parametrize(
    ("name", "codes"),
    [("spacing", codes) for codes in CODES]
    + [(name, codes) for name in ("acdc", "flare", "sagittal") for codes in ("RAS", "LPS", "SAR")],
)
def test_labels_return_to_their_grid(name: str, codes: str) -> None:
    recipe, shape = RECIPES[name], (60, 52, 44)
    # At least the target's resolution, so that what is lost is the recipe's fault.
    label = ball(shape)
    spacing = (8.0, 8.0, 8.0) if name == "flare" else (4.0, 4.0, 4.0)
    affine = affine_of(codes, shape, spacing)
    prepared, geometry = recipe.apply(label[None].astype(np.float32), affine)
    if name == "flare":
        assert prepared.shape == (1, 30, 192, 192)
    prepared_label = recipe.cut(recipe.resample_label(label, geometry)[None])[0]
    assert prepared_label.shape == prepared.shape[1:] == recipe.prepared_shape(geometry)
    restored = recipe.invert(prepared_label, geometry)
    assert restored.shape == shape
    assert restored.dtype == np.uint8
    np.testing.assert_array_equal(np.array(geometry.affine), affine)
    cropped = name in ("acdc", "flare")
    inside = (
        restored if not cropped else np.where(recipe.invert(np.ones_like(prepared_label), geometry), restored, label)
    )
    for value in (1, 2):
        assert dice(label, inside, value) > 0.97


@pytest.mark.parametrize("codes", CODES)
def test_canonical_recipes_do_not_see_the_stored_orientation(codes: str) -> None:
    # The same patient stored in 48 ways: world positions decide, not the order of the file.
    generator = np.random.default_rng(0)
    canonical = generator.random((10, 12, 14)).astype(np.float32)
    world = (2.0, 1.5, 1.0)
    order = [next(i for i, pair in enumerate(("RL", "AP", "SI")) if code in pair) for code in codes]
    stored = canonical.transpose(order)
    stored = np.flip(stored, tuple(axis for axis, code in enumerate(codes) if code not in "RAS"))
    affine = affine_of(codes, stored.shape, tuple(world[axis] for axis in order))
    recipe = spacing_recipe(np.array([[1.0, 1.0, 1.0]]), np.array([canonical.shape]), PERCENTILE)
    expected, _ = recipe.apply(canonical[None], affine_of("RAS", canonical.shape, world))
    found, geometry = recipe.apply(np.ascontiguousarray(stored)[None], affine)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert recipe.prepared_spacing(geometry) == pytest.approx((1, 1, 1))
    # nibabel's own notion of the closest canonical orientation
    image = nib.as_closest_canonical(nib.Nifti1Image(stored, affine))
    np.testing.assert_array_equal(np.asarray(image.dataobj), canonical)


@settings(max_examples=12)
@given(seed=st.integers(0, 50), classes=st.integers(2, 5), name=st.sampled_from(sorted(RECIPES)))
def test_probabilities_stay_probabilities(seed: int, classes: int, name: str) -> None:
    recipe = RECIPES[name]
    geometry = Geometry.of((20, 17, 9), affine_of("LPS", (20, 17, 9), (4.0, 5.0, 8.0)))
    generator = np.random.default_rng(seed)
    scores = generator.random((classes, *recipe.prepared_shape(geometry))).astype(np.float32)
    restored = recipe.invert(scores / scores.sum(0), geometry)
    assert restored.shape == (classes, 20, 17, 9)
    assert restored.dtype == np.float32
    np.testing.assert_allclose(restored.sum(0), 1, atol=1e-5)
    assert restored.min() >= 0


def test_outside_the_crop_is_background() -> None:
    geometry = Geometry.of((256, 216, 3), np.diag([1.5, 1.5, 10, 1]))
    recipe = ACDC
    ones = np.zeros((2, 3, 192, 192), dtype=np.float32)
    ones[1] = 1
    probabilities = recipe.invert(ones, geometry)
    labels = recipe.invert(np.ones((3, 192, 192), dtype=np.uint8), geometry)
    for corner in ((0, 0), (-1, -1), (0, 100), (100, -1)):
        assert labels[corner].max() == 0
        np.testing.assert_allclose(probabilities[:, *corner], np.array([[1] * 3, [0] * 3]), atol=1e-6)
    assert labels[128, 108].min() == 1
    np.testing.assert_allclose(probabilities[1, 128, 108], 1)


@pytest.mark.parametrize(
    ("intensity", "expected"),
    [
        (Intensity(method="window", low=-100, high=100), [0, 0, 0.5, 1, 1]),
        (Intensity(method="percentile", low=0, high=100), [0, 0.45, 0.5, 0.55, 1]),
        (Intensity(method="percentile", low=25, high=75), [0, 0, 0.5, 1, 1]),
    ],
)
def test_intensities(intensity: Intensity, expected: list[float]) -> None:
    channel = np.float32([-1000, -100, 0, 100, 1000])
    np.testing.assert_allclose(intensity.apply(channel), expected, atol=1e-6)


def test_constant_and_extreme_images_survive() -> None:
    scale = Intensity(method="percentile", low=0, high=100)
    np.testing.assert_array_equal(scale.apply(np.full(4, 7, dtype=np.float32)), 0)
    extreme = np.float32([-3.4e38, 0, 3.4e38])
    np.testing.assert_allclose(scale.apply(extreme), [0, 0.5, 1])


def test_a_recipe_survives_json_exactly() -> None:
    geometry = Geometry.of((3, 4, 5), affine_of("LPS", (3, 4, 5), (0.1, 1 / 3, np.pi)))
    assert Geometry.model_validate_json(geometry.model_dump_json()) == geometry
    for recipe in RECIPES.values():
        assert Recipe.model_validate_json(recipe.model_dump_json()) == recipe


def test_wrong_arrays_are_refused() -> None:
    recipe = ACDC
    with pytest.raises(InputError, match=r"image must have shape \(1, X, Y, Z\)"):
        recipe.apply(np.zeros((2, 3, 4, 5), dtype=np.float32), np.eye(4))
    with pytest.raises(InputError, match="array must end in"):
        recipe.invert(np.zeros((3, 10, 10), dtype=np.uint8), Geometry.of((5, 6, 3), np.eye(4)))
    with pytest.raises(InputError, match=r"spacing\.0"):
        change_recipe(FLARE, {"spacing": (-1.0, 1.0, 1.0)})
    for low, high in ((5, 5), (-1, 50), (50, 101)):
        with pytest.raises(ValidationError):
            Intensity(method="percentile", low=low, high=high)


@pytest.mark.parametrize("shape", [(1, 5, 4), (5, 1, 4), (5, 4, 1), (1, 1, 1)])
def test_a_flipped_axis_of_one_voxel(shape: tuple[int, int, int]) -> None:
    recipe = Recipe(name="x", orientation="canonical", intensity=(Intensity(method="percentile", low=0, high=100),))
    image = np.arange(np.prod(shape), dtype=np.float32).reshape(1, *shape)
    prepared, geometry = recipe.apply(image, np.diag([-1.0, -1.0, -1.0, 1.0]))
    assert prepared.shape == (1, shape[2], shape[1], shape[0])
    label = (image[0] > 2).astype(np.uint8)
    np.testing.assert_array_equal(recipe.invert(recipe.resample_label(label, geometry), geometry), label)
