"""Maximum likelihood of calibrated probabilities, cell by cell, from data that is read a few times and never kept.

Calibrated logits are linear in their coefficients, so the negative log-likelihood is convex, and Newton's method finds
its minimum. A first look at some planes keeps a small sample, on which the minimum is found roughly; each pass over the
data then takes a step with the sums over all voxels, in double precision, until what is left to go is negligible. The
result therefore depends neither on the sample nor on how the data was divided into batches or processes. For a single
scale the sums hold ten derivatives, with which one or two passes suffice.
"""

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from crac.calibration.newton import identity, minimise
from crac.calibration.pieces import Slab
from crac.calibration.sample import MOST, Kept, joined, sampled
from crac.calibration.sums import Coefficients, Sums, over_processes, sums_over
from crac.errors import InputError
from crac.parallel import in_threads

Read = Callable[[bool], Iterable[list[Slab]]]
"""Reads the data, batch by batch, each in slabs; only a few of these, where told that a sample is enough."""

PRIOR = 100
"""A cell's scale is drawn towards the common one as if that had been seen on this many average voxels."""
PASSES, STEPS = 12, 60
THREADS = 4
"""Slabs that are worked on at the same time; more would need more memory, and outrun most disks."""


@dataclass(frozen=True)
class Fit:
    """Coefficients, and what they were found on.

    Args:
        weights: ``(cells, J)`` in ``float64``.
        by_cell: Voxels of each cell.
        undecided: Cells whose voxels every scale fits equally well: predictions are constant, or certain and right.
        batches: Number of batches.
        passes: How often the data was read.
        converged: Whether the last step was negligible.
    """

    weights: Tensor
    by_cell: list[int]
    undecided: list[bool]
    batches: int
    passes: int
    converged: bool

    @property
    def voxels(self) -> int:
        """Number of voxels."""
        return sum(self.by_cell)


def fit_cells(read: Read, coefficients: Coefficients, cells: int, num_classes: int, *, by_volume: bool) -> Fit:
    """Find the coefficients of every cell with the highest likelihood.

    Several processes of an initialised ``torch.distributed`` group read a share of the data each and find the same.

    Args:
        read: The data.
        coefficients: What is to be found.
        cells: How many cells there are.
        num_classes: ``K``.
        by_volume: Every batch weighs the same, instead of every voxel.

    Raises:
        InputError: There is no voxel.
    """
    batches = 0

    def whole(weights: Tensor) -> Sums:
        def sums(slab: Slab) -> list[Sums]:
            return [sums_over(weights, coefficients, *piece[:3]).weighed(piece.stands_for) for piece in slab.voxels()]

        nonlocal batches
        total, batches = Sums.zeros(weights, coefficients), 0
        for slabs in read(False):
            own = Sums.zeros(weights, coefficients)
            for part in itertools.chain.from_iterable(in_threads(sums, slabs, _threads(slabs))):
                own = own.plus(part)
            number = float(own.weight.sum())
            batches += number > 0
            total = total.plus(own.weighed(1 / number) if by_volume and number else own)
        return total.over_processes()

    start = _start(_sample(read, by_volume), coefficients, identity(coefficients, cells, num_classes))
    weights, sums, steps, converged = minimise(whole, start, coefficients, PASSES)
    if not sums.count.sum():
        raise InputError("batches must hold at least one labelled voxel of the mask; got none")
    undecided = (sums.count > 0) & (sums.hessian[:, 0, 0] <= 0)
    return Fit(
        weights=_shrink(weights, sums, coefficients),
        by_cell=[int(number) for number in sums.count],
        undecided=undecided.tolist(),
        batches=over_processes([batches])[0],
        passes=steps + 1,
        converged=converged,
    )


def _threads(slabs: list[Slab]) -> int:
    on_cpu = all(slab.scores.device.type == "cpu" for slab in slabs)
    return max(1, min(THREADS, torch.get_num_threads(), len(slabs))) if on_cpu else 1


def _sample(read: Read, by_volume: bool) -> list[Kept]:
    """Voxels of a few planes of each batch."""

    def few(slab: Slab) -> list[Kept]:
        return [sampled(piece) for piece in slab.voxels()]

    parts: list[Kept] = []
    for slabs in read(True):
        parts += joined([kept for found in in_threads(few, slabs, _threads(slabs)) for kept in found], by_volume)
        if sum(len(part[1]) for part in parts) >= MOST:
            break
    return joined(parts, by_volume=False)


def _start(sample: list[Kept], coefficients: Coefficients, start: Tensor) -> Tensor:
    """The coefficients with the highest likelihood on a sample; what it says little about is taken as elsewhere."""

    def drawn(weights: Tensor) -> Sums:
        total = Sums.zeros(weights, coefficients)
        for logits, labels, cell, weight in sample:
            total = total.plus(sums_over(weights, coefficients, logits, labels, cell, weight))
        return total.over_processes()

    weights, sums, *_ = minimise(drawn, start, coefficients, STEPS)
    return _shrink(weights, sums, coefficients, prior=1)


def _shrink(weights: Tensor, sums: Sums, coefficients: Coefficients, prior: float = PRIOR) -> Tensor:
    """Draw each scale towards the common one, by how much the cell's voxels say about it; empty cells take that one.

    Where there are biases, the ridge already holds the coefficients of small cells, and only empty cells change.
    """
    information = sums.hessian[:, 0, 0]
    total = information.sum()
    if len(weights) == 1 or total <= 0:
        return weights
    scale = weights[:, 0]
    common = (information * scale).sum() / total
    strength = prior * total / sums.count.sum()
    drawn = (information * scale + strength * common) / (information + strength)
    if coefficients != "scale":
        drawn = torch.where(sums.count > 0, scale, common)
    return torch.cat([drawn.unsqueeze(1), weights[:, 1:]], 1)
