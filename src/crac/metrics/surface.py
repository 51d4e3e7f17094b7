"""Distances between the surfaces of two masks."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Mask = NDArray[np.bool_]
Distances = NDArray[np.float64]


def bounding_box(mask: Mask) -> tuple[slice, ...] | None:
    """The smallest box that holds all of a mask; None if it is empty."""
    box: list[slice] = []
    for axis in range(mask.ndim):
        # The axes already cut make the next one cheaper.
        present = np.flatnonzero(mask[tuple(box)].any(axis=tuple(other for other in range(mask.ndim) if other != axis)))
        if present.size == 0:
            return None
        box.append(slice(int(present[0]), int(present[-1]) + 1))
    return tuple(box)


def surface(mask: Mask) -> Mask:
    """The voxels of a mask with a face on its outside; beyond the edge of the array is outside."""
    inside = mask.copy()
    for axis in range(mask.ndim):
        here: list[Any] = [slice(None)] * mask.ndim
        next_: list[Any] = [slice(None)] * mask.ndim
        here[axis], next_[axis] = slice(None, -1), slice(1, None)
        inside[tuple(here)] &= mask[tuple(next_)]
        inside[tuple(next_)] &= mask[tuple(here)]
        for end in (0, -1):
            here[axis] = end
            inside[tuple(here)] = False
    return mask & ~inside


def surface_distances(prediction: Mask, labels: Mask, spacing: Sequence[float]) -> tuple[Distances, Distances]:
    """Distance of every surface voxel of each mask to the nearest surface voxel of the other.

    Args:
        prediction: Boolean, 2-D or 3-D, not empty.
        labels: Boolean of the same shape, not empty.
        spacing: Size of a voxel along each axis.

    Returns:
        The distances from ``prediction`` to ``labels`` and back.
    """
    from scipy.spatial import KDTree

    box = bounding_box(prediction | labels)
    if box is None:
        raise ValueError("surface_distances needs two masks that are not empty")
    first, second = surface(prediction[box]), surface(labels[box])
    size = np.asarray(spacing, dtype=np.float64)

    def directed(source: Mask, target: Mask) -> Distances:
        # Surface voxels the two share are at distance 0 and need no search; of a good prediction that is most.
        apart = np.argwhere(source & ~target) * size
        distances = np.zeros(int(np.count_nonzero(source)))
        if len(apart):
            tree = KDTree(np.argwhere(target) * size, compact_nodes=False, balanced_tree=False)
            distances[: len(apart)] = tree.query(apart, workers=-1)[0]
        return distances

    return directed(first, second), directed(second, first)
