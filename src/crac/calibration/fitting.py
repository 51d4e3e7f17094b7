"""Maximum likelihood of calibrated probabilities, cell by cell, from data that is read a few times and never kept.

Calibrated logits are linear in their coefficients, so the negative log-likelihood is convex, and Newton's method finds
its minimum. A first look at some planes keeps a small sample, on which the minimum is found roughly; each pass over the
data then takes a step with the sums over all voxels, in double precision, until what is left to go is negligible. The
result therefore depends neither on the sample nor on how the data was divided into batches or processes. For a single
scale the sums hold ten derivatives, with which one or two passes suffice.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from crac.calibration.newton import SumsOf, identity, minimise
from crac.calibration.pieces import Slab
from crac.calibration.sample import MOST, Kept, joined, sampled
from crac.calibration.sums import Coefficients, Sums, over_processes, sums_over
from crac.errors import InputError
from crac.parallel import in_threads

Read = Callable[[bool], Iterable[list[Slab]]]
"""Reads the data, batch by batch, each in slabs; only a few of these, where told that a sample is enough."""

PRIOR = 100
"""A cell's scale is drawn towards the common one as if that had been seen on this many average voxels."""
NEGLIGIBLE = 0.01
"""Relative change of a scale up to which a parabola tells well enough how far it is drawn."""
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

    sample = _sample(read, by_volume)

    def on_sample(weights: Tensor) -> Sums:
        total = Sums.zeros(weights, coefficients)
        for logits, labels, cell, weight in sample:
            total = total.plus(sums_over(weights, coefficients, logits, labels, cell, weight))
        return total.over_processes()

    start, seen, *_ = minimise(on_sample, identity(coefficients, cells, num_classes), coefficients, STEPS)
    start = _shrink(start, seen, coefficients, Pull.to_common(start, seen, prior=1))
    weights, sums, steps, converged = minimise(whole, start, coefficients, PASSES)
    if not sums.count.sum():
        raise InputError("batches must hold at least one labelled voxel of the mask; got none")
    pull = Pull.to_common(weights, sums, PRIOR)
    drawn = _shrink(weights, sums, coefficients, pull)
    undecided = (sums.count > 0) & (sums.hessian[:, 0, 0] <= 0)
    moved = (drawn - weights)[:, 0].abs() > NEGLIGIBLE * weights[:, 0]
    if coefficients == "scale" and pull is not None and bool((moved & (sums.count > 0)).any()):
        # Where a cell is never wrong its likelihood is flat at the minimum and steep on the way to the others'.
        silent = (sums.sides[:, :, 0] == 0).all(1, keepdim=True)
        alone = torch.where(silent, pull.common, weights)
        share = pull.weighed(float(seen.weight.sum() / sums.weight.sum()))
        drawn, *_ = minimise(share.added_to(on_sample), alone, coefficients, STEPS)
        drawn = torch.where((drawn - pull.common).abs() < 1e-6, alone, drawn)  # the sample may lack a cell
        drawn, _, more, settled = minimise(pull.added_to(whole), drawn, coefficients, PASSES)
        steps, converged = steps + more, converged and settled
        undecided &= drawn[:, 0] == pull.common
    return Fit(
        weights=drawn,
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


@dataclass(frozen=True)
class Pull:
    """What draws the scale ``a`` of every cell towards a common one: ``strength / 2 * (a - common)**2``.

    Args:
        common: The mean of all cells' scales, each weighed by what its voxels say about it.
        strength: The information of a number of average voxels.
    """

    common: Tensor
    strength: Tensor

    @staticmethod
    def to_common(weights: Tensor, sums: Sums, prior: float) -> Pull | None:
        """The pull between the minima of cells; None where there is one only, or no voxel says anything."""
        information = sums.hessian[:, 0, 0]
        total = information.sum()
        if len(weights) == 1 or total <= 0:
            return None
        return Pull((information * weights[:, 0]).sum() / total, prior * total / sums.count.sum())

    def weighed(self, factor: float) -> Pull:
        """The pull if every voxel weighed so many times as much."""
        return replace(self, strength=factor * self.strength)

    def added_to(self, sums_of: SumsOf) -> SumsOf:
        """The sums with the pull among the voxels, on the side of those that want what it wants."""

        def pulled(weights: Tensor) -> Sums:
            sums, away = sums_of(weights), weights[:, 0] - self.common
            side, cells = (away > 0).long(), torch.arange(len(away))
            sides = sums.sides.clone()
            sides[cells, side, 0] += self.strength * away
            sides[cells, side, 1] += self.strength
            return replace(
                sums,
                loss=sums.loss + self.strength * away**2 / 2,
                gradient=sums.gradient + (self.strength * away).unsqueeze(1),
                hessian=sums.hessian + self.strength,
                sides=sides,
            )

        return pulled


def _shrink(weights: Tensor, sums: Sums, coefficients: Coefficients, pull: Pull | None) -> Tensor:
    """Draw each scale towards the common one, by how much the cell's voxels say about it; empty cells take that one.

    Their likelihood is taken for a parabola. Where there are biases, the ridge already holds the coefficients of small
    cells, and only empty cells change.
    """
    if pull is None:
        return weights
    information, scale = sums.hessian[:, 0, 0], weights[:, 0]
    drawn = (information * scale + pull.strength * pull.common) / (information + pull.strength)
    if coefficients != "scale":
        drawn = torch.where(sums.count > 0, scale, pull.common)
    return torch.cat([drawn.unsqueeze(1), weights[:, 1:]], 1)
