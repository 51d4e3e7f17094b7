"""Counting probabilities into cells, voxel by voxel, on any device."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import torch
from torch import Tensor

from crac.functional.binning import Cells, Scratch
from crac.functional.slabs import Slab, Voxels

__all__ = ["RANGE_TOLERANCE", "REGIONS", "SUM_TOLERANCE", "Tally", "Top", "tally"]

REGIONS = 2
# Few enough for a core's cache, enough to make up for the cost of calling torch some hundred times.
CPU_STEP = 2**17
CUDA_STEP = 2**23
# Neighbouring voxels mostly fall into the same cell. Adding to it many times in a row is slow, on a CPU because each
# addition waits for the one before, on a GPU because threads collide; so they take turns on copies of the cells.
CPU_COPIES, CUDA_COPIES = 4, 32
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
        invalid: Scalar count of voxels that hold no probabilities.
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


class Top(NamedTuple):
    """The predicted class voxel by voxel: its probability (-1 where not counted), whether it is right, the region."""

    confidence: Tensor
    correct: Tensor
    region: Tensor


def tally(
    slabs: Sequence[Slab], scores: Tensor, cells: Cells, from_logits: bool, record: bool = False
) -> tuple[Tally, list[Top]]:
    """Count the voxels of a batch.

    On a GPU nothing here waits for the device.

    Args:
        slabs: The batch, from :func:`crac.functional.slabs.cut`.
        scores: Its scores, for their number of classes and device.
        cells: How to cut the probabilities.
        from_logits: Whether the scores are logits.
        record: Whether to return what was seen of the predicted class, voxel by voxel.
    """
    on_cpu = scores.device.type == "cpu"
    step = CPU_STEP if on_cpu else CUDA_STEP

    def count(share: Sequence[Slab]) -> tuple[Tally, list[Top]]:
        counter = _Counter(scores[0], min(step, max(slab.size for slab in share)), cells, from_logits, record)
        seen = [counter.add(part) for slab in share for part in slab.voxels().parts(step)]
        return counter.total(), [top for top in seen if top is not None]

    threads = torch.get_num_threads()
    workers = min(threads, len(slabs) // 2) if on_cpu else 1
    if workers < 2:
        return count(slabs)
    shares = [slabs[len(slabs) * w // workers : len(slabs) * (w + 1) // workers] for w in range(workers)]
    try:
        # Each worker keeps to one thread: torch's own would fight over the same cores.
        with ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            counted = list(pool.map(count, shares))
    finally:
        torch.set_num_threads(threads)  # the workers' setting is also what threads started later would begin with
    total = counted[0][0]
    for other, _ in counted[1:]:
        total.add_(other)
    return total, [top for _, tops in counted for top in tops]


class _Counter:
    """Counts parts one after the other, in memory that is taken once."""

    def __init__(self, scores: Tensor, length: int, cells: Cells, from_logits: bool, record: bool) -> None:
        self.cells, self.from_logits, self.record = cells, from_logits, record
        self.num_classes, self.device = len(scores), scores.device
        self.copies = CPU_COPIES if self.device.type == "cpu" else CUDA_COPIES
        self.slots = 4 * REGIONS * cells.size
        new = functools.partial(torch.empty, length, device=self.device)
        self.scratch = Scratch.like(new())
        self.exact, self.places = new(dtype=torch.float64), new(dtype=torch.int64)
        self.ones = torch.ones(length, dtype=torch.int64, device=self.device)
        self.turn = torch.arange(length, device=self.device).remainder_(self.copies).float()
        zeros = functools.partial(torch.zeros, device=self.device)
        self.counts = zeros(self.num_classes, self.copies * self.slots, dtype=torch.int64)
        self.sums = zeros(self.num_classes, self.copies * self.slots, dtype=torch.float64)
        self.squares = zeros(self.num_classes * 2, dtype=torch.float64)
        self.surprise = zeros(self.copies * self.num_classes * REGIONS, dtype=torch.float64)
        self.invalid = zeros((), dtype=torch.int64)

    def total(self) -> Tally:
        """What was counted."""
        shape = (self.num_classes, self.copies, REGIONS, 2, 2, self.cells.size)
        return Tally(
            self.counts.view(shape).sum(1),
            self.sums.view(shape).sum(1),
            self.squares.view(self.num_classes, 2),
            self.surprise.view(self.copies, self.num_classes, REGIONS).sum(0),
            self.invalid,
        )

    def add(self, voxels: Voxels) -> Top | None:
        """Count a part."""
        scores, labels, region, keep = voxels
        if keep is not None and self.device.type == "cpu":
            # Dropping voxels is cheaper than carrying them; on a GPU it would have to wait for their number.
            kept = keep.nonzero().squeeze(1)
            if kept.numel() == 0:
                return None
            scores, labels, region = scores.index_select(1, kept), labels[kept], region[kept]
            keep = None
        if scores.dtype not in (torch.float32, torch.float64):
            scores = scores.float()
        rows = scores.unbind(0)
        best = scores.amax(0)
        probabilities, partition = _softmax(rows, best) if self.from_logits else (rows, best)
        label, outer = labels.float(), region.float()
        correct, own = self._count_rows(rows, probabilities, best, label, outer, keep)
        self._count_surprise(scores, own, partition, label, outer, keep)
        if not self.record:
            return None
        confidence = functools.reduce(torch.maximum, probabilities).double()
        return Top(confidence if keep is None else torch.where(keep, confidence, -1), correct, region)

    def _count_rows(
        self,
        rows: Sequence[Tensor],
        probabilities: Sequence[Tensor],
        best: Tensor,
        label: Tensor,
        outer: Tensor,
        keep: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        """Add every class's probabilities to their cells.

        Returns:
            1 where the predicted class is the labelled one, and the labelled class's probability.
        """
        number, size = len(best), self.cells.size
        scratch, exact, places = self.scratch.first(number), self.exact[:number], self.places[:number]
        one = self.ones[:number] if keep is None else keep.long()
        weight = None if keep is None else keep.double()
        outside = outer.double()
        offset = torch.add(outer * (4 * size), self.turn[:number], alpha=self.slots)
        # Comparisons written as 0 and 1 into floats are several times as fast as into booleans.
        free, hit, top = torch.ones_like(best), torch.empty_like(best), torch.empty_like(best)
        own = torch.zeros_like(best)
        correct = torch.zeros_like(best) if self.record else own
        squares = []
        for k, (row, probability) in enumerate(zip(rows, probabilities, strict=True)):
            exact.copy_(probability)
            if weight is not None:
                exact *= weight
            torch.eq(label, k, out=hit)
            torch.eq(row, best, out=top)
            if k:
                top *= free  # of equal classes the first is the predicted one
            if k + 1 < len(rows):
                free -= top
            cell = self.cells.index(probability, exact, scratch)
            flags = torch.add(offset, top, alpha=2 * size, out=scratch.single).add_(hit, alpha=size)
            cell += scratch.whole.copy_(flags)
            places.copy_(cell)
            self.counts[k].scatter_add_(0, places, one)
            self.sums[k].scatter_add_(0, places, exact)
            squares += [torch.dot(exact, exact), torch.dot(torch.mul(exact, outside, out=scratch.double), exact)]
            own.addcmul_(probability, hit)
            if self.record:
                correct.addcmul_(hit, top)
        self.squares += torch.stack(squares)
        return correct, own

    def _count_surprise(
        self, scores: Tensor, own: Tensor, partition: Tensor, label: Tensor, outer: Tensor, keep: Tensor | None
    ) -> None:
        """Add the negative log-likelihoods, and count what is no probability."""
        number = len(label)
        places = self.places[:number]
        known = label.clamp(0, self.num_classes - 1)
        if self.from_logits:
            surprise = partition - scores.gather(0, places.copy_(known).unsqueeze(0)).squeeze(0)
            fault = partition - partition  # 0, or NaN where it is not finite
        else:
            surprise = own.clamp_(min=torch.finfo(own.dtype).eps).log_().neg_()
            fault = scores.sum(0).sub_(1).abs_()
            fault = torch.maximum(fault, scores.amin(0).mul_(-SUM_TOLERANCE / RANGE_TOLERANCE))
        sound = torch.lt(fault, SUM_TOLERANCE, out=torch.empty_like(fault))
        exact = self.exact[:number].copy_(surprise)
        if keep is not None:
            exact *= keep
            sound = torch.where(keep, sound, 1)
        slot = torch.add(outer, known, alpha=REGIONS).add_(self.turn[:number], alpha=self.num_classes * REGIONS)
        self.surprise.scatter_add_(0, places.copy_(slot), exact)
        self.invalid += number - sound.sum().long()


def _softmax(rows: Sequence[Tensor], best: Tensor) -> tuple[list[Tensor], Tensor]:
    """Softmax over the rows and its log-partition; ``best`` is their maximum."""
    powers = [(row - best).exp_() for row in rows]
    total = functools.reduce(torch.add, powers)
    return [power.div_(total) for power in powers], total.log().add_(best)
