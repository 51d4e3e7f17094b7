"""Counting probabilities into cells, voxel by voxel, on any device."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import torch
from torch import Tensor

from crac.functional.binning import Cells

__all__ = ["REGIONS", "Tally", "Voxels", "tally"]

REGIONS = 2
# Under 2^15 elements torch runs an operation on the calling thread; that many also stay in a core's cache.
CPU_STEP = 2**15 - 2**9
CUDA_STEP = 2**24
# What rounding a probability to half precision or to a byte can do to the sum of a few classes.
SUM_TOLERANCE = 0.02
RANGE_TOLERANCE = 1e-3


class Tally(NamedTuple):
    """Everything the statistics are computed from; all of it adds up over batches, volumes and processes.

    Attributes:
        counts: ``(K, region, top, hit, cells)`` in ``int64``: voxels per class by the cell of that class's
            probability, told apart by region, by whether the class is the predicted one (``top``) and by
            whether it is the labelled one (``hit``).
        confidence: Same shape, ``float64``: the sum of those probabilities.
        squares: ``(K, 2)`` sum of squared probabilities, over all voxels and over the outer ones.
        surprise: ``(K, region)`` sum of ``-log(probability of the labelled class)`` by labelled class.
        invalid: Scalar count of voxels that hold no probabilities or no class.
    """

    counts: Tensor
    confidence: Tensor
    squares: Tensor
    surprise: Tensor
    invalid: Tensor

    @classmethod
    def zeros(cls, num_classes: int, cells: Cells, device: torch.device) -> Tally:
        """An empty one."""
        shape = (num_classes, REGIONS, 2, 2, cells.size)
        return cls(
            torch.zeros(shape, dtype=torch.int64, device=device),
            torch.zeros(shape, dtype=torch.float64, device=device),
            torch.zeros(shape[:2], dtype=torch.float64, device=device),
            torch.zeros(shape[:2], dtype=torch.float64, device=device),
            torch.zeros((), dtype=torch.int64, device=device),
        )

    def add_(self, other: Tally) -> None:
        """Add another one in place."""
        for mine, theirs in zip(self, other, strict=True):
            mine += theirs.to(mine.device)


class Voxels(NamedTuple):
    """One image's voxels, in a row.

    Attributes:
        scores: ``(K, V)`` logits or probabilities, floating point.
        labels: ``(V,)`` integers.
        region: ``(V,)`` of ``uint8``.
        keep: ``(V,)`` boolean, or None for all.
    """

    scores: Tensor
    labels: Tensor
    region: Tensor
    keep: Tensor | None

    def part(self, start: int, stop: int) -> Voxels:
        """A range of them."""
        keep = None if self.keep is None else self.keep[start:stop]
        return Voxels(self.scores[:, start:stop], self.labels[start:stop], self.region[start:stop], keep)


class Top(NamedTuple):
    """The predicted class voxel by voxel: its probability (-1 where not counted), whether it is right, the region."""

    confidence: Tensor
    correct: Tensor
    region: Tensor


def tally(voxels: Voxels, total: Tally, cells: Cells, from_logits: bool, record: bool = False) -> list[Top]:
    """Count an image's voxels.

    On a GPU nothing here waits for the device.

    Args:
        voxels: What to count.
        total: Where to add.
        cells: How to cut the probabilities.
        from_logits: Whether ``voxels.scores`` are logits.
        record: Whether to return what was seen of the predicted class, voxel by voxel.
    """
    num_classes, size = voxels.scores.shape
    on_cpu = voxels.scores.device.type == "cpu"
    step = CPU_STEP if on_cpu else CUDA_STEP

    def count(start: int, stop: int, into: Tally) -> list[Top]:
        parts = (voxels.part(first, min(first + step, stop)) for first in range(start, stop, step))
        seen = [_tally_part(part, into, cells, from_logits, record) for part in parts]
        return [top for top in seen if top is not None]

    workers = min(torch.get_num_threads(), size // (4 * step)) if on_cpu else 1
    if workers < 2:
        return count(0, size, total)
    share = -(-size // workers)
    own = [Tally.zeros(num_classes, cells, voxels.scores.device) for _ in range(workers)]
    with ThreadPoolExecutor(workers, initializer=lambda: torch.set_num_threads(1)) as pool:
        starts = range(0, size, share)
        seen = list(pool.map(lambda start, into: count(start, min(start + share, size), into), starts, own))
    for part in own:
        total.add_(part)
    return [top for tops in seen for top in tops]


def _tally_part(voxels: Voxels, total: Tally, cells: Cells, from_logits: bool, record: bool) -> Top | None:
    scores, labels, region, keep = voxels
    if keep is not None and scores.device.type == "cpu":
        # Dropping voxels is cheaper than carrying them; on a GPU it would have to wait for their number.
        places = keep.nonzero().squeeze(1)
        if places.numel() == 0:
            return None
        scores, labels, region = scores.index_select(1, places), labels[places], region[places]
        keep = None
    if scores.dtype not in (torch.float32, torch.float64):
        scores = scores.float()
    rows = scores.unbind(0)
    best = functools.reduce(torch.maximum, rows)
    probabilities, partition = _softmax(rows, best) if from_logits else (rows, best)

    one = torch.ones_like(labels, dtype=torch.int64) if keep is None else keep.long()
    kept = one.double()
    outer = kept * region
    label = labels.to(best.dtype)
    # Comparisons written as 0 and 1 into floats are several times as fast as into booleans.
    free, hit, top = torch.ones_like(best), torch.empty_like(best), torch.empty_like(best)
    offset = region.to(best.dtype).mul_(4 * cells.size)
    correct = torch.zeros_like(best)
    for k, (row, probability) in enumerate(zip(rows, probabilities, strict=True)):
        exact = probability.double()
        if keep is not None:
            exact = exact * kept
        torch.eq(label, k, out=hit)
        torch.eq(row, best, out=top).mul_(free)  # of equal classes the first is the predicted one
        free -= top
        slot = torch.add(offset, top, alpha=2 * cells.size).add_(hit, alpha=cells.size).int()
        slot += cells.index(probability, exact)
        places = slot.long()
        total.counts[k].view(-1).scatter_add_(0, places, one)
        total.confidence[k].view(-1).scatter_add_(0, places, exact)
        total.squares[k] += torch.stack([torch.dot(exact, exact), torch.dot(exact * outer, exact)])
        if record:
            correct.addcmul_(hit, top)

    known = labels.long().clamp(0, len(rows) - 1)
    own = scores.gather(0, known.unsqueeze(0)).squeeze(0)
    if from_logits:
        surprise = partition - own
        valid = partition.isfinite()
    else:
        surprise = own.clamp(min=torch.finfo(own.dtype).eps).log().neg()
        valid = (sum(rows) - 1).abs() < SUM_TOLERANCE  # type: ignore[union-attr]
        valid &= functools.reduce(torch.minimum, rows) > -RANGE_TOLERANCE
    valid &= known == labels
    total.surprise.view(-1).scatter_add_(0, known * REGIONS + region, surprise * kept)
    total.invalid.add_((one * ~valid).sum())
    if not record:
        return None
    confidence = functools.reduce(torch.maximum, probabilities).double()
    return Top(confidence if keep is None else torch.where(keep, confidence, -1), correct, region)


def _softmax(rows: Sequence[Tensor], best: Tensor) -> tuple[list[Tensor], Tensor]:
    """Softmax over the rows and its log-partition; ``best`` is their maximum."""
    powers = [(row - best).exp_() for row in rows]
    total = functools.reduce(torch.add, powers)
    return [power.div_(total) for power in powers], total.log().add_(best)
