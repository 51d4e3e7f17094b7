"""Counting probabilities into cells, voxel by voxel, on any device."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from crac.metrics.cells import Cells, Scratch
from crac.metrics.slabs import Slab, Voxels
from crac.parallel import in_threads

REGIONS = 2
# Probabilities at a time: few enough for a core's cache, enough to make up for calling torch fifty times for them.
CPU_STEP = 2**18
CUDA_STEP = 2**23
# Neighbouring voxels mostly fall into the same cell. Adding to it many times in a row is slow, on a CPU because each
# addition waits for the one before, on a GPU because threads collide; so they take turns on copies of the cells.
CPU_COPIES, CUDA_COPIES = 4, 32
# What rounding a probability to half precision or to a byte can do to the sum of a few classes.
SUM_TOLERANCE = 0.02
RANGE_TOLERANCE = 1e-3


class Counts(NamedTuple):
    """Everything the statistics are computed from; all of it adds up over batches, volumes and processes.

    Attributes:
        counts: ``(K, region, top, hit, cells)`` in ``int64``: voxels per class by the cell of that class's
            probability, by region, by whether the class is the predicted one (``top``) and by
            whether it is the labelled one (``hit``).
        confidence: Same shape, ``float64``: the sum of those probabilities.
        squares: ``(K, region)`` sum of squared probabilities.
        likelihood_loss: ``(K, region)`` sum of ``-log(probability of the labelled class)`` by labelled class.
        invalid: Scalar count of voxels that hold no probabilities.
    """

    counts: Tensor
    confidence: Tensor
    squares: Tensor
    likelihood_loss: Tensor
    invalid: Tensor

    @classmethod
    def zeros(cls, num_classes: int, cells: Cells, device: torch.device) -> Counts:
        """Return counts of no voxels."""
        shape = (num_classes, REGIONS, 2, 2, cells.size)
        return cls(
            torch.zeros(shape, dtype=torch.int64, device=device),
            torch.zeros(shape, dtype=torch.float64, device=device),
            torch.zeros(shape[:2], dtype=torch.float64, device=device),
            torch.zeros(shape[:2], dtype=torch.float64, device=device),
            torch.zeros((), dtype=torch.int64, device=device),
        )

    def plus(self, other: Counts) -> Counts:
        """The sum, on the device of the first; not in place, which inference tensors would not allow."""
        return Counts(*(mine + theirs.to(mine.device) for mine, theirs in zip(self, other, strict=True)))


class TopLabel(NamedTuple):
    """The predicted class voxel by voxel: its probability (-1 where not counted), whether it is right, the region."""

    confidence: Tensor
    correct: Tensor
    region: Tensor


def may_look(scores: Tensor) -> bool:
    """Whether code may depend on values: on a GPU it would have to wait for them."""
    return scores.device.type == "cpu"


def count_voxels(
    slabs: Sequence[Slab], scores: Tensor, cells: Cells, from_logits: bool, record: bool = False
) -> tuple[Counts, list[TopLabel]]:
    """Count the voxels of a batch.

    On a GPU nothing here waits for the device.

    Args:
        slabs: The batch, from :func:`crac.metrics.slabs.cut`.
        scores: Its scores, for their number of classes and device.
        cells: How to cut the probabilities.
        from_logits: Whether the scores are logits.
        record: Whether to return what was seen of the predicted class, voxel by voxel.
    """
    on_cpu = may_look(scores)
    step = max(1, (CPU_STEP if on_cpu else CUDA_STEP) // scores.shape[1])

    @torch.inference_mode()
    def count(share: Sequence[Slab]) -> tuple[Counts, list[TopLabel]]:
        counter = _Counter(scores, min(step, max(slab.size for slab in share)), cells, from_logits, record)
        seen = [counter.add(part) for slab in share for part in slab.voxels(compress=on_cpu).parts(step)]
        return counter.total(), [top for top in seen if top is not None]

    workers = min(torch.get_num_threads(), len(slabs) // 2) if on_cpu else 1
    if workers < 2:
        return count(slabs)
    shares = [slabs[len(slabs) * w // workers : len(slabs) * (w + 1) // workers] for w in range(workers)]
    counted = list(in_threads(count, shares, workers))
    total = functools.reduce(Counts.plus, (part for part, _ in counted))
    return total, [top for _, tops in counted for top in tops]


class _Memory(NamedTuple):
    """What counting a part needs, taken once: fresh memory for each part would cost more than counting it.

    ``places`` are in the memory of ``scratch.double``: the less of it there is, the more of it a cache holds.
    """

    scratch: Scratch
    top: Tensor
    exact: Tensor
    places: Tensor
    ones: Tensor
    turn: Tensor

    @classmethod
    def take(cls, num_classes: int, length: int, copies: int, count_type: torch.dtype, device: torch.device) -> _Memory:
        """Return memory for parts of up to ``length`` voxels, which take turns on ``copies`` of the cells."""
        new = functools.partial(torch.empty, num_classes * length, device=device)
        scratch = Scratch.like(new())
        turn = torch.arange(length, device=device).remainder_(copies).float()
        places, ones = scratch.double.view(torch.int64), new(dtype=count_type).fill_(1)
        return cls(scratch, new(), new(dtype=torch.float64), places, ones, turn)

    def shaped(self, shape: Sequence[int]) -> _Memory:
        """Return the first part of the memory, for voxels of this shape, ``(K, V)``."""
        top, exact, places, ones = (part[: math.prod(shape)].view(shape) for part in self[1:5])
        return _Memory(self.scratch.shaped(shape), top, exact, places, ones, self.turn[: shape[1]])


class _Counter:
    """Counts parts one after the other, in memory that is taken once."""

    def __init__(self, scores: Tensor, length: int, cells: Cells, from_logits: bool, record: bool) -> None:
        self.cells, self.from_logits, self.record = cells, from_logits, record
        self.num_classes, self.device = scores.shape[1], scores.device
        self.on_cpu = may_look(scores)
        self.copies = CPU_COPIES if self.on_cpu else CUDA_COPIES
        # Half the memory traffic, where no cell can hold more in one call.
        count_type = torch.int32 if scores.numel() < 2**31 else torch.int64
        self.memory = _Memory.take(self.num_classes, length, self.copies, count_type, self.device)
        self.space = self.memory.shaped((self.num_classes, length))
        self.classes = torch.arange(self.num_classes, device=self.device).float().unsqueeze(1)
        zeros = functools.partial(torch.zeros, device=self.device)
        slots = self.copies * REGIONS * 4 * cells.size
        self.counts = zeros(self.num_classes, slots, dtype=count_type)
        self.sums = zeros(self.num_classes, slots, dtype=torch.float64)
        self.squares = zeros(REGIONS, self.num_classes, dtype=torch.float64)
        self.likelihood = zeros(self.num_classes * self.copies * REGIONS, dtype=torch.float64)
        self.invalid = zeros((), dtype=torch.int64)

    def total(self) -> Counts:
        """Return what was counted."""
        shape = (self.num_classes, self.copies, REGIONS, 2, 2, self.cells.size)
        return Counts(
            self.counts.view(shape).sum(1, dtype=torch.int64),
            self.sums.view(shape).sum(1),
            self.squares.T.contiguous(),
            -self.likelihood.view(self.num_classes, self.copies, REGIONS).sum(1),
            self.invalid,
        )

    def add(self, voxels: Voxels) -> TopLabel | None:
        """Count a part."""
        scores, labels, region, keep = voxels
        if scores.dtype not in (torch.float32, torch.float64):
            scores = scores.float()
        if scores.shape != self.space.exact.shape:
            self.space = self.memory.shaped(scores.shape)
        best = scores.amax(0)
        probabilities, partition = _softmax(scores, best) if self.from_logits else (scores, best)
        label, outer = labels.float(), region.float()
        place = torch.add(outer, self.space.turn, alpha=REGIONS)  # which copy, and which region of it
        correct, own = self._count_classes(scores, probabilities, best, label, outer, place, keep)
        self._count_likelihood(scores, own, partition, label, place, keep)
        self._count_invalid(scores, partition, keep)
        if not self.record:
            return None
        confidence = probabilities.amax(0).double()
        return TopLabel(confidence if keep is None else torch.where(keep, confidence, -1), correct, region)

    def _count_classes(
        self,
        scores: Tensor,
        probabilities: Tensor,
        best: Tensor,
        label: Tensor,
        outer: Tensor,
        place: Tensor,
        keep: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        """Add every class's probabilities to their cells.

        Returns:
            1 where the predicted class is the labelled one, and the labelled class's probability.
        """
        scratch, top, exact, places, one, _ = self.space
        number = len(label)
        exact.copy_(probabilities)
        if keep is not None:
            exact.masked_fill_(~keep, 0)
            one = keep.to(one.dtype).expand(exact.shape)
        cell = self.cells.index(probabilities, exact, scratch)

        # Comparisons written as 0 and 1 into floats are several times as fast as into booleans.
        hit = torch.eq(label, self.classes, out=scratch.single)
        rows = zip(probabilities.unbind(), hit.unbind(), strict=True)
        own = torch.mul(*next(rows))
        for row, chosen in rows:
            own.addcmul_(row, chosen)
        torch.eq(scores, best, out=top)
        if not self.on_cpu or float(top.sum()) != number:
            _keep_first(top)
        correct = torch.mul(hit, top).sum(0) if self.record else own
        hit.add_(place, alpha=4).add_(top, alpha=2)
        cell.add_(scratch.whole.copy_(hit), alpha=self.cells.size)
        places.copy_(cell)
        self.counts.scatter_add_(1, places, one)
        self.sums.scatter_add_(1, places, exact)

        squares, outside = exact.square_(), scratch.double[0].copy_(outer)
        self.squares[1].addmv_(squares, outside)
        self.squares[0].addmv_(squares, torch.sub(1, outside, out=outside))
        return correct, own

    def _count_likelihood(
        self, scores: Tensor, own: Tensor, partition: Tensor, label: Tensor, place: Tensor, keep: Tensor | None
    ) -> None:
        """Add the logarithms of the labelled class's probability."""
        places, exact = self.space.places[0], self.space.exact[0]
        known = label.clamp(0, self.num_classes - 1)
        if self.from_logits:
            exact.copy_(scores.gather(0, places.copy_(known).unsqueeze(0)).squeeze(0).sub_(partition))
        else:
            exact.copy_(own.clamp_(min=torch.finfo(own.dtype).eps).log_())
        if keep is not None:
            exact.masked_fill_(~keep, 0)
        slot = torch.add(place, known, alpha=self.copies * REGIONS)
        self.likelihood.scatter_add_(0, places.copy_(slot), exact)

    def _count_invalid(self, scores: Tensor, partition: Tensor, keep: Tensor | None) -> None:
        """Count the voxels whose scores are no probabilities, or not finite."""
        total = partition if self.from_logits else scores.sum(0)
        if self.on_cpu:
            # A look at the extremes settles it for nearly every part; NaN fails every comparison.
            low, high = (float(end) for end in total.aminmax())
            if self.from_logits:
                sound = -math.inf < low <= high < math.inf
            else:
                sound = 1 - SUM_TOLERANCE < low <= high < 1 + SUM_TOLERANCE and float(scores.amin()) > -RANGE_TOLERANCE
            if sound:
                return
        fault = total - total  # 0, or NaN where it is not finite
        if not self.from_logits:
            fault = torch.where(scores.amin(0) < -RANGE_TOLERANCE, 1, fault + (total - 1).abs())
        wrong = ~(fault < SUM_TOLERANCE)
        self.invalid += (wrong if keep is None else wrong & keep).sum()


def _keep_first(top: Tensor) -> None:
    """Keep only the first of several ones in a column ``(K, V)``: of equal classes it is the predicted one."""
    free = 1 - top[0]
    for row in top[1:]:
        row *= free
        free -= row


def _softmax(scores: Tensor, best: Tensor) -> tuple[Tensor, Tensor]:
    """Softmax over the classes and its log-partition; ``best`` is their maximum."""
    powers = (scores - best).exp_()
    total = powers.sum(0)
    return powers.div_(total), total.log().add_(best)
