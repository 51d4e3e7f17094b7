"""Maximum likelihood of calibrated probabilities, cell by cell, from data that is read a few times and never kept.

Calibrated logits are linear in their coefficients, so the negative log-likelihood is convex, and Newton's method finds
its minimum. The first pass keeps a small sample, on which the minimum is found roughly; each further pass takes a
Newton step with the sums over all voxels, in double precision, until the steps vanish. The result therefore depends
neither on the sample nor on how the data was divided into batches or processes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

import torch
import torch.distributed as dist
from torch import Tensor

from crac.errors import InputError

Coefficients = Literal["scale", "affine", "vector"]
"""Coefficients of a cell: one scale of all logits; that and a bias for each class; or both for each class."""

Voxels = Callable[[], Iterable[tuple[Tensor, Tensor, Tensor, float]]]
"""Logits ``(K, V)``, labels ``(V,)``, cells ``(V,)``, and what each of these voxels weighs."""

LOWEST = 0.05
"""Smallest scale, the inverse of the largest temperature; the largest scale is ``1 / LOWEST``."""
PRIOR = 100
"""A cell's scale is drawn towards the common one as if that had been seen on this many average voxels."""
RIDGE = 1.0
"""Strength of what holds biases near 0, in voxels."""
SAMPLE = 2**12
"""Voxels of each cell and batch that are kept in the first pass."""
MOST_SAMPLED = 2**21
PART = 2**18
PASSES, STEPS = 12, 60
TOLERANCE = 1e-9


@dataclass(frozen=True)
class Fit:
    """Coefficients, and what they were found on.

    Args:
        weights: ``(cells, J)`` in ``float64``.
        by_cell: Voxels of each cell.
        batches: Number of batches.
        passes: How often the data was read.
    """

    weights: Tensor
    by_cell: list[int]
    batches: int
    passes: int

    @property
    def voxels(self) -> int:
        """Number of voxels."""
        return sum(self.by_cell)

    @staticmethod
    def identity(coefficients: Coefficients, cells: int, num_classes: int) -> Tensor:
        """Coefficients ``(cells, J)`` that change nothing."""
        scales = num_classes if coefficients == "vector" else 1
        biases = 0 if coefficients == "scale" else num_classes
        one = torch.cat([torch.ones(scales, dtype=torch.float64), torch.zeros(biases, dtype=torch.float64)])
        return one.repeat(cells, 1)


@dataclass(frozen=True)
class _Sums:
    """Sums over voxels by cell: negative log-likelihood ``(C,)``, its gradient and Hessian, voxels, total weight."""

    loss: Tensor
    gradient: Tensor
    hessian: Tensor
    count: Tensor
    weight: Tensor

    def plus(self, other: _Sums) -> _Sums:
        return _Sums(*(mine + theirs for mine, theirs in zip(vars(self).values(), vars(other).values(), strict=True)))


def fit_cells(voxels: Voxels, coefficients: Coefficients, cells: int, num_classes: int) -> Fit:
    """Find the coefficients of every cell with the highest likelihood.

    Several processes of an initialised ``torch.distributed`` group read a share of the data each and find the same.

    Raises:
        InputError: There is no voxel, or logits are not finite.
    """
    start = Fit.identity(coefficients, cells, num_classes)
    sample, batches = _draw(voxels, cells)
    kept = [torch.cat(parts, -1) for parts in zip(*sample, strict=True)] if sample else None
    if kept is not None:
        start = _minimise(lambda weights: _sums(weights, coefficients, *kept), start, coefficients, STEPS)[0]
    if _distributed():  # processes agree where to begin; where they end does not depend on it
        shared = torch.cat([start.flatten() * len(sample), torch.tensor([len(sample), batches], dtype=torch.float64)])
        dist.all_reduce(shared)
        start = (shared[:-2] / shared[-2].clamp(min=1)).view_as(start)
        batches = int(shared[-1])

    def whole(weights: Tensor) -> _Sums:
        total = _zeros(weights)
        for logits, labels, cell, weight in voxels():
            for first in range(0, labels.numel(), PART):
                part = slice(first, first + PART)
                each = torch.full((len(labels[part]),), weight, dtype=torch.float64, device=logits.device)
                total = total.plus(_sums(weights, coefficients, logits[:, part], labels[part], cell[part], each))
        if _distributed():
            for tensor in vars(total).values():
                dist.all_reduce(tensor)
        return total

    weights, sums, steps = _minimise(whole, start, coefficients, PASSES)
    if not sums.count.sum():
        raise InputError("batches must hold at least one labelled voxel of the mask; got none")
    if not sums.loss.isfinite().all():
        raise InputError("logits must be finite; got NaN or infinite values")
    if coefficients == "scale":
        weights = _shrink(weights, sums)
    return Fit(weights, [int(number) for number in sums.count], batches, steps + 1)


def _draw(voxels: Voxels, cells: int) -> tuple[list[tuple[Tensor, ...]], int]:
    """Up to ``SAMPLE`` voxels of each cell and batch, evenly spaced, on the CPU: logits, labels, cells, weights."""
    sample: list[tuple[Tensor, ...]] = []
    batches = size = 0
    for logits, labels, cell, weight in voxels():
        batches += 1
        for number in range(cells):
            where = (cell == number).nonzero().squeeze(1)
            step = -(-where.numel() // SAMPLE)
            if step and size < MOST_SAMPLED:
                where = where[::step]
                each = torch.full((where.numel(),), weight * step, dtype=torch.float64)
                sample.append((logits[:, where].cpu(), labels[where].cpu(), cell[where].cpu(), each))
                size += where.numel()
    return sample, batches


def _minimise(
    sums_of: Callable[[Tensor], _Sums], weights: Tensor, coefficients: Coefficients, most: int
) -> tuple[Tensor, _Sums, int]:
    """Newton's method, every cell by itself; a step that makes a cell worse is halved.

    Returns:
        The coefficients, the sums there, and how often sums were taken.
    """
    size = weights.shape[1]
    identity = Fit.identity(coefficients, 1, {"scale": 1, "affine": size - 1, "vector": size // 2}[coefficients])
    strength = 0.0 if coefficients == "scale" else RIDGE
    best, best_loss = weights, torch.full((len(weights),), torch.inf, dtype=torch.float64)
    for taken in itertools.count(1):
        sums = sums_of(weights)
        ridge = strength * (sums.weight / sums.count.clamp(min=1)).unsqueeze(1).expand_as(weights)
        away = weights - identity
        loss = sums.loss + (ridge * away**2).sum(1) / 2
        better = loss <= best_loss * (1 + 1e-12) + 1e-300
        best = torch.where(better.unsqueeze(1), weights, best)
        best_loss = torch.where(better, loss, best_loss)
        hessian = sums.hessian + torch.diag_embed(ridge + 1e-12 * sums.weight.clamp(min=1e-300).unsqueeze(1))
        move = torch.linalg.solve(hessian, sums.gradient + ridge * away)
        following = torch.where(better.unsqueeze(1), weights - move, (weights + best) / 2)
        following = torch.where((sums.count > 0).unsqueeze(1), following, weights)
        if coefficients != "vector":
            following[:, 0] = following[:, 0].clamp(LOWEST, 1 / LOWEST)
        still = (following - weights).abs() <= TOLERANCE * weights.abs().clamp(min=1)
        if taken == most or not following.isfinite().all() or bool(still.all()):
            break
        weights = following
    return weights, sums, taken


def _shrink(weights: Tensor, sums: _Sums) -> Tensor:
    """Draw each scale towards the common one, by how much the cell's voxels say about it; empty cells take that one."""
    information = sums.hessian[:, 0, 0]
    total = information.sum()
    if total <= 0:
        return torch.where((sums.count > 0).unsqueeze(1), weights, torch.ones_like(weights))
    if len(weights) == 1:
        return weights
    common = (information * weights[:, 0]).sum() / total
    prior = PRIOR * total / sums.count.sum()
    return ((information * weights[:, 0] + prior * common) / (information + prior)).unsqueeze(1)


def _zeros(weights: Tensor) -> _Sums:
    cells, size = weights.shape
    new = weights.new_zeros
    return _Sums(new(cells), new(cells, size), new(cells, size, size), new(cells), new(cells))


def _sums(
    weights: Tensor, coefficients: Coefficients, logits: Tensor, labels: Tensor, cell: Tensor, weight: Tensor
) -> _Sums:
    """The sums of some voxels at given coefficients; double precision from the first addition on."""
    classes, device = logits.shape[0], logits.device
    total = _zeros(weights.to(device))
    count = torch.bincount(cell, minlength=len(weights)).double()
    mass = torch.zeros_like(total.weight).index_add_(0, cell, weight)
    labels = labels.long()
    if coefficients == "scale":
        # Relative to the labelled class, differences are small and exact where the model is right.
        logits = logits.double()
        logits = logits - logits.gather(0, labels.unsqueeze(0))
        z = logits * weights[:, 0].to(device)[cell]
        top = z.amax(0)
        powers = (z - top).exp_()
        norm = powers.sum(0)
        mean = (powers * logits).sum(0) / norm
        square = (powers * logits.square()).sum(0) / norm
        rows = torch.stack([norm.log() + top, mean, (square - mean.square()).clamp_(min=0)]) * weight
        sums = rows.new_zeros(3, len(weights)).index_add_(1, cell, rows)
        parts = sums[0], sums[1].unsqueeze(1), sums[2].view(-1, 1, 1)
        return _Sums(*(part.cpu() for part in (*parts, count, mass)))
    spread = 1 if coefficients == "affine" else classes
    for number in count.nonzero().flatten().tolist():
        here = (cell == number).nonzero().squeeze(1)
        x, y, w = logits[:, here].double(), labels[here], weight[here]
        own = weights[number].to(device)
        z = x * own[:spread].unsqueeze(1) + own[spread:].unsqueeze(1)
        log_p = z.log_softmax(0)
        p = log_p.exp()
        total.loss[number] = -(log_p.gather(0, y.unsqueeze(0)).squeeze(0) * w).sum()
        excess = p.scatter_add(0, y.unsqueeze(0), -torch.ones_like(w).unsqueeze(0)) * w
        gradient = torch.cat([(excess * x).sum(1), excess.sum(1)])
        features = torch.cat([p * x, p])  # (2K, V)
        hessian = -(features * w) @ features.T
        diagonal = [(p * x * x * w).sum(1), (p * x * w).sum(1), (p * w).sum(1)]
        index = torch.arange(classes, device=device)
        hessian[index, index] += diagonal[0]
        hessian[index, index + classes] += diagonal[1]
        hessian[index + classes, index] += diagonal[1]
        hessian[index + classes, index + classes] += diagonal[2]
        if coefficients == "affine":  # one scale for all classes
            join = torch.zeros(2 * classes, classes + 1, dtype=torch.float64, device=device)
            join[:classes, 0] = 1
            join[index + classes, index + 1] = 1
            gradient, hessian = join.T @ gradient, join.T @ hessian @ join
        total.gradient[number], total.hessian[number] = gradient, hessian
    return _Sums(*(part.cpu() for part in (total.loss, total.gradient, total.hessian, count, mass)))


def _distributed() -> bool:
    return dist.is_available() and dist.is_initialized()
