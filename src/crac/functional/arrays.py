"""Tensors of whatever holds numbers."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Array = Tensor | NDArray[Any]

UNSIGNED = (torch.uint16, torch.uint32, torch.uint64)
"""Types of integers that torch can hold and hardly compute with."""


def as_tensor(values: Array) -> Tensor:
    """Return a tensor without history; arrays that torch cannot share, flipped ones among them, are copied."""
    if isinstance(values, Tensor):
        return computable(values.detach())
    array = np.asarray(values)
    if not array.dtype.isnative or any(step < 0 for step in array.strides):
        array = array.astype(array.dtype.newbyteorder("="), order="C")
    return computable(torch.as_tensor(array))


def in_steps(values: NDArray[np.float32], steps: int, winner: NDArray[np.intp]) -> NDArray[np.signedinteger[Any]]:
    """Return probabilities ``(K, *S)`` as whole numbers of steps that sum to ``steps``, the winner still ahead.

    The winner makes up for the rounding of the others. Where that would put another class ahead, the others are rounded
    down; where it is level with one that comes before it even so, it takes a step from that one.

    Args:
        values: Probabilities that sum to 1.
        steps: How many steps there are between 0 and 1.
        winner: Class ``S`` that is to be the most probable one.
    """
    first = winner[None]
    kind: np.dtype[np.signedinteger[Any]] = np.dtype(np.int16 if steps < 2**15 else np.int32)

    def whole(rounded: NDArray[np.float32], first: NDArray[np.intp]) -> NDArray[np.signedinteger[Any]]:
        found = rounded.astype(kind)
        rest = steps - found.sum(0, dtype=np.int32, keepdims=True)
        np.put_along_axis(found, first, np.take_along_axis(found, first, 0) + rest, 0)
        return found

    scaled = values * np.float32(steps)
    found = whole(np.rint(scaled), first)
    behind = found.argmax(0) != winner
    part, ahead = whole(np.floor(scaled[:, behind]), first[:, behind]), winner[behind]
    level = np.nonzero(part.argmax(0) != ahead)[0]
    while level.size:
        part[part.argmax(0)[level], level] -= 1
        part[ahead[level], level] += 1
        level = level[part.argmax(0)[level] != ahead[level]]
    found[:, behind] = part
    return found


def computable(values: Tensor) -> Tensor:
    """Return the tensor, in ``int64`` where torch can hardly compute with its type."""
    return values.long() if values.dtype in UNSIGNED else values
