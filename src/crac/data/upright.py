"""Which way up a slice is shown: one rule for every picture.

Radiologists look from the feet, front up: the patient's right is on the left of an axial or coronal picture, the front
on top of an axial one and on the left of a sagittal one, the head on top of the others. Where a recipe leaves the axes
as they are stored, so do pictures: it is chosen for data whose headers do not say how patients lie.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import numpy as np
from nibabel.affines import voxel_sizes
from nibabel.orientations import io_orientation
from numpy.typing import NDArray

from crac.data.recipe import Geometry, Recipe
from crac.data.recipes import MR_INTENSITY, spacing_recipe


class Upright(NamedTuple):
    """How a volume is turned into a stack of pictures.

    Attributes:
        order: Axes of the volume that become slices, rows and columns.
        flips: Axes of the volume that are reversed.
    """

    order: tuple[int, int, int]
    flips: tuple[int, ...]

    @classmethod
    def prepared(cls, recipe: Recipe) -> Self:
        """Return how volumes ``(D, H, W)`` of a store are turned."""
        # Canonical axes grow to the right, the front and the top.
        return cls((0, 1, 2), (1, 2) if recipe.orientation == "canonical" else ())

    @classmethod
    def native(cls, recipe: Recipe, geometry: Geometry) -> Self:
        """Return how volumes ``(X, Y, Z)`` on the grid of an image to be prepared are turned: the same picture."""
        order, reversed_axes = recipe.axes(geometry)
        turned = {order[axis] for axis in cls.prepared(recipe).flips}
        depth, height, width = order
        return cls((depth, height, width), tuple(sorted(turned ^ set(reversed_axes))))

    @classmethod
    def of_file(cls, shape: Sequence[int], affine: NDArray[np.float64]) -> Self:
        """Return how volumes ``(X, Y, Z)`` with no more than a header are turned: slices across the coarsest axis."""
        axes = np.argsort(io_orientation(affine)[:, 0])
        recipe = spacing_recipe(voxel_sizes(affine)[None, axes], np.array(shape)[None, axes], (MR_INTENSITY,))
        return cls.native(recipe, Geometry.of(shape, affine))

    def turn(self, volume: NDArray[Any]) -> NDArray[Any]:
        """Return ``(..., slices, rows, columns)`` of a volume ``(..., *S)``."""
        before = volume.ndim - 3
        flipped = np.flip(volume, tuple(axis + before for axis in self.flips))
        return flipped.transpose(*range(before), *(axis + before for axis in self.order))

    def aspect(self, spacing: Sequence[float]) -> float:
        """Return the height of a pixel divided by its width, from millimetres along the axes of the volume."""
        return float(spacing[self.order[1]] / spacing[self.order[2]])
