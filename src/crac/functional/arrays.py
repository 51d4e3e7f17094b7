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


def computable(values: Tensor) -> Tensor:
    """Return the tensor, in ``int64`` where torch can hardly compute with its type."""
    return values.long() if values.dtype in UNSIGNED else values
