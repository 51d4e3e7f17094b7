"""Histograms of probabilities, fine enough to rebuild every binned calibration statistic from.

A probability falls into a *cell*. Cells are cut by three sets of edges at once: the equal-width bins of the
reliability diagram, one threshold, and a logarithmic scale of the odds ``p / (1 - p)``. The first two make the
equal-width statistics exact; the last one lets equal-mass bins be formed after the fact, with a resolution of
3 % of ``p`` or of ``1 - p``, whichever is smaller. That matters: most voxels of a segmentation have a
probability within 0.001 of 0 or 1, where equal-width cells would see one lump.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from crac.errors import InputError, check_number

STEPS_PER_OCTAVE = 32
# Odds outside 2^-20 .. 2^24 share the end cells; 2^-24 is the smallest 1 - p a float32 can hold.
LOWEST, HIGHEST = -20, 24
SHIFT = 23 - int(math.log2(STEPS_PER_OCTAVE))  # drops all but the leading bits of a float32's mantissa
FIRST = (127 + LOWEST) << 23 >> SHIFT
LAST = (127 + HIGHEST) << 23 >> SHIFT


class Scratch(NamedTuple):
    """Memory for intermediate values: fresh memory for each of them would cost more than computing them."""

    single: Tensor
    double: Tensor
    cell: Tensor
    whole: Tensor

    @classmethod
    def like(cls, values: Tensor) -> Scratch:
        """Return memory for values of this shape."""
        types = (torch.float32, torch.float64, torch.int32, torch.int32)
        return cls(*(torch.empty(values.shape, dtype=dtype, device=values.device) for dtype in types))

    def shaped(self, shape: Sequence[int]) -> Scratch:
        """Return the first part of the memory, in another shape."""
        return Scratch(*(part.view(-1)[: math.prod(shape)].view(shape) for part in self))


@functools.lru_cache
def cut_cells(bins: int, threshold: float) -> Cells:
    """Return the cutting into cells, made once: its edges take milliseconds to find."""
    return Cells(bins, threshold)


class Cells:
    """The cutting of ``[0, 1]`` into cells.

    Args:
        bins: Number of equal-width bins ``(a, b]``; exactly 0 belongs to the first.
        threshold: Probabilities above it are told apart from those up to it.

    Attributes:
        size: Number of cells.
        bin: ``(size,)`` equal-width bin of each cell.
        above: ``(size,)`` whether a cell lies above the threshold.
    """

    def __init__(self, bins: int, threshold: float) -> None:
        check_number("bins", bins, least=1, whole=True)
        check_number("threshold", threshold)
        if not 0 <= threshold < 1:
            raise InputError(f"threshold must lie in [0, 1); got {threshold!r}")
        self.bins, self.threshold = bins, threshold
        self._threshold_bits = int(torch.tensor(threshold, dtype=torch.float32).view(torch.int32))
        self.size = LAST - FIRST + 1 + bins
        first = self._first_probabilities()
        self.bin = (first * bins).ceil().long().clamp(1, bins) - 1
        self.above = first.float().view(torch.int32) > self._threshold_bits

    def index(self, probabilities: Tensor, exact: Tensor, scratch: Scratch | None = None) -> Tensor:
        """Cell of each probability.

        Each set of edges contributes the number of its edges below the probability, so the sum of the three
        changes wherever any of them does: no search, no table.

        Args:
            probabilities: ``float32`` or ``float64`` in ``[0, 1]``, any shape.
            exact: The same in ``float64``, in which ``p * bins`` is compared with whole numbers. The threshold
                is compared in ``float32``.
            scratch: Memory to work in.

        Returns:
            ``int32`` of the same shape, in ``scratch`` if given. Values that are not probabilities get some cell,
            never a bad index.
        """
        space = scratch or Scratch.like(probabilities)
        single = probabilities.float()
        # Rounding may leave a little more than 1, which is as sure as 1 and not as impossible as 0.
        rest = torch.sub(1, single, out=space.single).clamp_(min=0)
        odds = torch.div(single, rest, out=space.single)
        cell = torch.bitwise_right_shift(odds.view(torch.int32), SHIFT, out=space.cell).clamp_(FIRST, LAST)
        cell += space.whole.copy_(self._edges_below(exact, single is probabilities, space.double))
        # Compared as bit patterns, which sort like the values they stand for, to stay in one vectorised type.
        cell += torch.gt(single.view(torch.int32), self._threshold_bits, out=space.whole)
        return cell.sub_(FIRST).clamp_(0, self.size - 1)

    def _edges_below(self, exact: Tensor, from_single: bool, out: Tensor) -> Tensor:
        """A number whose whole part is how many edges ``b / bins``, ``b > 0``, lie below each probability."""
        if from_single:
            # p * bins is exact, and if it exceeds a whole number, then by far more than this factor takes away.
            return torch.mul(exact, self.bins * (1 - 2**-50), out=out)
        return torch.mul(exact, self.bins, out=out).ceil_().sub_(1)

    def _first_probabilities(self) -> Tensor:
        """The smallest ``float64`` in each cell, by bisection over the bit patterns, which sort like the values."""
        wanted = torch.arange(self.size, dtype=torch.int32)
        low = torch.zeros(self.size, dtype=torch.int64)
        high = torch.ones(self.size, dtype=torch.float64).view(torch.int64)
        while bool((low < high).any()):
            middle = (low + high) // 2
            value = middle.view(torch.float64)
            reached = self.index(value, value) >= wanted
            low, high = torch.where(reached, low, middle + 1), torch.where(reached, middle, high)
        return high.view(torch.float64)


class Bins(NamedTuple):
    """Statistics of equal-width bins, each ``(..., bins)`` in ``float64``; means of empty bins are NaN."""

    counts: Tensor
    confidence: Tensor
    accuracy: Tensor

    @property
    def gap(self) -> Tensor:
        """Confidence minus accuracy: positive where the model claims too much."""
        return self.confidence - self.accuracy

    @property
    def expected_error(self) -> Tensor:
        """Mean of ``|gap|`` over the samples; NaN without samples."""
        return (self.counts * self.gap.abs()).nansum(-1) / self.counts.sum(-1)

    @property
    def maximum_error(self) -> Tensor:
        """Largest ``|gap|`` of a bin that holds samples; NaN without samples."""
        error = self.gap.abs()
        return torch.where(self.counts.sum(-1) > 0, error.nan_to_num(nan=0.0).amax(-1), torch.nan)


def equal_width_bins(count: Tensor, confidence: Tensor, hits: Tensor, cells: Cells) -> Bins:
    """Gather cells into the equal-width bins they were cut along.

    Args:
        count: ``(..., size)`` samples per cell.
        confidence: ``(..., size)`` sum of their probabilities.
        hits: ``(..., size)`` how many of them the event happened to.
        cells: The cutting.
    """

    def gather(values: Tensor) -> Tensor:
        out = torch.zeros(*values.shape[:-1], cells.bins, dtype=values.dtype, device=values.device)
        return out.index_add_(-1, cells.bin.to(values.device), values).double()

    total = gather(count)
    return Bins(total, gather(confidence) / total, gather(hits) / total)


def equal_mass_error(count: Tensor, confidence: Tensor, hits: Tensor, bins: int) -> Tensor:
    """Expected calibration error over bins that hold equally many samples, from cells in growing order.

    Where a bin's edge falls into a cell, the cell is divided in proportion, as if its samples were alike.

    Args:
        count: As for :func:`equal_width_bins`, like the next two.
        confidence: Sums of the probabilities.
        hits: How often the event happened.
        bins: Number of bins.

    Returns:
        ``(...)`` in ``float64``; NaN where there are no samples.
    """
    mass = count.double().cumsum(-1)
    excess = (confidence - hits).double()
    total = mass[..., -1:]
    edges = total * torch.arange(1, bins, dtype=torch.float64, device=count.device) / bins
    cell = torch.searchsorted(mass, edges).clamp_(max=count.shape[-1] - 1)
    # The excess below an edge: all cells before the edge's own, and its own in proportion.
    left = mass.gather(-1, cell) - count.double().gather(-1, cell)
    share = (edges - left) / count.double().gather(-1, cell)
    own = excess.gather(-1, cell)
    below = excess.cumsum(-1).gather(-1, cell) - own + share * own
    ends = excess.sum(-1, keepdim=True)
    return torch.cat([torch.zeros_like(ends), below, ends], -1).diff().abs().sum(-1) / total[..., 0]


def quantile_error(confidence: Tensor, hits: Tensor, bins: int) -> Tensor:
    """Expected calibration error over bins between the quantiles of the confidences, as the paper's code has it.

    The bins are ``(a, b]``, so the lowest confidence of all is in none of them; it is left out here too if one
    sample has it. If several share it they are counted in the first bin: with saturated probabilities they may
    be the whole volume.

    Args:
        confidence: ``(N,)``.
        hits: ``(N,)`` 1 where the event happened, else 0.
        bins: Number of bins.

    Returns:
        Scalar in ``float64``; NaN without samples.
    """
    number = confidence.numel()
    if number == 0:
        return torch.tensor(torch.nan, dtype=torch.float64)
    ordered, order = confidence.double().sort()
    place = torch.arange(1, bins, dtype=torch.float64, device=ordered.device) * (number / bins)
    whole = place.long().clamp(max=number - 1)
    edges = torch.lerp(ordered[whole], ordered[(whole + 1).clamp(max=number - 1)], place - whole)
    part = torch.searchsorted(edges, ordered)
    excess = ordered - hits.double()[order]
    if number > 1 and ordered[0] < ordered[1]:
        excess[0] = 0
    sums = torch.zeros(bins, dtype=torch.float64, device=ordered.device).index_add_(0, part, excess)
    return sums.abs().sum() / number
