"""The thresholds that are tried, and the histogram of probabilities between them."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

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

_SHIFT = 10
_FIRST, _LAST = (int(bits) >> _SHIFT for bits in np.array([_LEAST, 1], dtype=np.float32).view(np.int32))
_BINS = np.concatenate([[0], (THRESHOLDS[1:].astype(np.float32).view(np.int32) >> _SHIFT) - _FIRST + 1])


def histogram(values: Tensor) -> NDArray[np.int64]:
    """How many of some ``float32`` probabilities lie from each threshold up to the next."""
    # The upper bits of a float count 8,192 steps an octave, finer than any two thresholds; bin 0 is all that is less.
    bins = (values.view(torch.int32) >> _SHIFT).sub_(_FIRST - 1).clamp_(0, _LAST - _FIRST + 1)
    counts = torch.bincount(bins, minlength=_LAST - _FIRST + 2).numpy()
    return np.add.reduceat(counts, _BINS)
