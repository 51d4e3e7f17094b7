"""The named recipes."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from crac.data.recipe import Dims, Intensity, Recipe
from crac.errors import checked

MR_INTENSITY = Intensity(method="percentile", low=0.5, high=99.5)
"""Magnetic resonance has no units, and a few bright voxels."""

ACDC = Recipe(
    name="acdc", orientation="stored", size=(None, 224, 224), crop=(None, 192, 192), intensity=(MR_INTENSITY,)
)
"""The paper's for ACDC: slices as stored, resized to 224 x 224, the centre 192 x 192.

The paper does not say how intensities are scaled; ours are as for all MR images.
"""

FLARE = Recipe(
    name="flare",
    orientation="canonical",
    spacing=(8.0, 2.0, 2.0),
    crop=(30, 192, 192),
    intensity=(Intensity(method="window", low=-160, high=240),),
)
"""The paper's for FLARE: a common spacing, the centre 192 x 192 x 30, abdominal CT window.

The paper does not print its spacing. At 2 x 2 x 8 mm the crop covers 384 x 384 x 240 mm: a whole abdomen.
"""


def spacing_recipe(
    spacings: NDArray[np.float64], shapes: NDArray[np.int64], intensity: tuple[Intensity, ...], dims: Dims = 3
) -> Recipe:
    """Return the recipe for everything else: canonical orientation, the median spacing of the data set.

    ``spacings`` and ``shapes`` are those of each image after orientation, ``(N, 3)``; ``intensity`` has one scaling a
    channel. Slices are cut across the coarsest axis, or across that along which there is one voxel only. With
    ``dims=2`` that axis is not resampled, for slices would mix.
    """
    median = np.median(spacings, axis=0)
    # Isotropic up to rounding counts as isotropic: slices are then axial.
    slice_axis = int(np.argmax(median)) if median.max() > 1.01 * median.min() and median[2] < median.max() else 2
    single = np.flatnonzero(np.median(shapes, axis=0) == 1)  # what a file gives as the thickness says nothing
    slice_axis = int(single[0]) if len(single) == 1 else slice_axis
    order = [slice_axis, *(axis for axis in (2, 1, 0) if axis != slice_axis)]
    depth, height, width = (float(median[axis]) for axis in order)
    return Recipe(
        name="spacing",
        orientation="canonical",
        slice_axis=slice_axis,
        spacing=(depth if dims == 3 else None, height, width),
        intensity=intensity,
    )


def change_recipe(recipe: Recipe, changes: Mapping[str, object]) -> Recipe:
    """Return the recipe with other constants, and a name that says so."""
    if not changes:
        return recipe
    return checked(Recipe, recipe.model_dump() | {"name": f"{recipe.name} (changed)"} | dict(changes), "recipe")
