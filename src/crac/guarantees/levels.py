"""The thresholds that are tried, and the histogram of probabilities between them."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_FINE = 2.0**-7
_LEAST = 2.0**-24
_STEPS = 2**14

THRESHOLDS: NDArray[np.float64] = np.concatenate(
    [
        [0.0],
        np.ldexp(1 + np.arange(128) / 128, np.arange(-24, -7)[:, None]).ravel(),
        np.arange(_STEPS // 128, _STEPS + 1) / _STEPS,
    ]
)
"""0, then 128 steps an octave up to 1/128, then 16,384ths up to 1: networks that are too sure hide what they miss at
tiny probabilities. All are exact in ``float32``, so that ``p >= threshold`` is what was counted."""

_FIRST_BITS = int(np.float32(_LEAST).view(np.int32)) >> 16
_FIRST_STEP = int(np.searchsorted(THRESHOLDS, _FINE)) - _STEPS // 128


def histogram(values: Tensor) -> NDArray[np.int64]:
    """How many of some ``float32`` probabilities lie from each threshold up to the next."""
    total = len(values)
    values = values[values >= _LEAST].clamp_(max=1)  # most are 0, and rounding may leave 1.0000001
    # The upper half of a float's bits counts 128 steps an octave.
    small = (values.view(torch.int32) >> 16) - (_FIRST_BITS - 1)
    large = (values * _STEPS).to(torch.int32) + _FIRST_STEP
    level = torch.where(values < _FINE, small, large)
    counts: NDArray[np.int64] = torch.bincount(level, minlength=len(THRESHOLDS)).numpy()
    counts[0] = total - len(values)
    return counts
