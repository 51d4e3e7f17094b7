"""Recipes of every kind, and affines of every orientation."""

import numpy as np

from crac.data.recipe import Intensity
from crac.data.recipes import ACDC, FLARE, spacing_recipe

PERCENTILE = (Intensity(method="percentile", low=0.5, high=99.5),)


def affine_of(codes: str, shape: tuple[int, int, int], spacing: tuple[float, float, float]) -> np.ndarray:
    """Voxel (i, j, k) of an array whose axes run towards ``codes`` to millimetres; spacing by array axis."""
    affine = np.zeros((4, 4))
    for axis, code in enumerate(codes):
        world = next(index for index, pair in enumerate(("RL", "AP", "SI")) if code in pair)
        affine[world, axis] = spacing[axis] * (1 if code in "RAS" else -1)
    affine[:3, 3] = (-17.25, 31.5, 4.125)
    affine[3, 3] = 1
    return affine


SHAPE = np.array([[20, 20, 20]])
RECIPES = {
    "acdc": ACDC,
    "flare": FLARE,
    "spacing": spacing_recipe(np.array([[1.0, 1.2, 3.0]]), SHAPE, PERCENTILE),
    "sagittal": spacing_recipe(np.array([[4.0, 0.9, 0.9]]), SHAPE, PERCENTILE, dims=2),
}
