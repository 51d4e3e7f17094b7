"""Resampling between grids that cover the same field of view, and centred windows.

Resampling is separable: one small weight matrix an axis. The weights are those of linear interpolation
between voxel centres, widened when the target is coarser so that no voxel is skipped (antialiasing).
"""

import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from crac.errors import InputError

Shape = tuple[int, int, int]
MOST_VOXELS = 2**33
"""A grid above this is a mistake in a spacing or a size, not an image."""


def linear_weights(source: int, target: int) -> Tensor:
    """The ``(target, source)`` matrix that resamples one axis; every row sums to 1."""
    step = source / target
    centre = (torch.arange(target, dtype=torch.float64) + 0.5) * step - 0.5
    distance = (torch.arange(source, dtype=torch.float64) - centre[:, None]).abs() / max(step, 1.0)
    weights = (1 - distance).clamp_(min=0)
    return (weights / weights.sum(dim=1, keepdim=True)).float()


def check_size(shape: Sequence[int]) -> None:
    """Refuse a grid no memory could hold."""
    if math.prod(shape) > MOST_VOXELS:
        raise InputError(f"a grid of {' x '.join(map(str, shape))} voxels is too large; at most 2^33 are accepted")


def resample(array: Tensor, shape: Shape) -> Tensor:
    """Resample the last three dimensions of ``(..., D, H, W)`` linearly to ``shape``."""
    source = array.shape[-3:]
    # The axis that shrinks most goes first: the others then have less to do.
    for axis in sorted(range(3), key=lambda axis: shape[axis] / source[axis]):
        if shape[axis] == source[axis]:
            continue
        weights = linear_weights(source[axis], shape[axis]).to(array.device)
        if axis == 2:
            array = array @ weights.T
        elif axis == 1:
            array = weights @ array
        else:
            array = (weights @ array.flatten(-2)).reshape(*array.shape[:-3], shape[0], *array.shape[-2:])
    return array


def resample_labels(labels: NDArray[np.uint8], shape: Shape) -> NDArray[np.uint8]:
    """Resample class indices ``(D, H, W)``: each voxel takes the class with the largest interpolated share.

    Values never mix, and outlines keep their place better than with the nearest voxel.
    """
    if labels.shape == shape:
        return labels
    best = torch.full(shape, -1.0)
    out = torch.zeros(shape, dtype=torch.uint8)
    source = torch.from_numpy(np.ascontiguousarray(labels))
    for value in np.unique(labels):
        share = resample((source == int(value)).float(), shape)
        wins = share > best
        best = torch.where(wins, share, best)
        out[wins] = int(value)
    return out.numpy()


def window(source: int, target: int, start: int | None = None) -> tuple[slice, slice]:
    """Return the slice of an axis of ``source`` voxels that is read, and that of ``target`` voxels that it fills.

    The window of ``target`` voxels begins at ``start``; by default, and where it exceeds the axis, it is centred.
    """
    if start is None or target >= source:
        start = math.floor((source - target) / 2)
    low, high = max(start, 0), min(start + target, source)
    return slice(low, high), slice(low - start, high - start)
