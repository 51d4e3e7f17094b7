"""Sums over voxels, by cell: the negative log-likelihood of calibrated probabilities, and its derivatives."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import comb
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor

Coefficients = Literal["scale", "affine", "vector"]
"""Coefficients of a cell: one scale of all logits; that and a bias for each class; or both for each class."""

PART = 2**14
"""Voxels whose sums are taken at a time, so that a cache holds them; on a GPU 256 times as many."""
ORDER = 10
"""Derivatives with respect to a single scale."""


@dataclass(frozen=True)
class Sums:
    """Sums over voxels by cell: negative log-likelihood ``(C,)``, its derivatives, total weight, voxels.

    For a single scale ``sides`` holds the derivatives of all orders, ``(C, 2, ORDER)``, over the voxels that want
    a larger scale, and over those that want a smaller one.
    """

    loss: Tensor
    gradient: Tensor
    hessian: Tensor
    sides: Tensor
    weight: Tensor
    count: Tensor

    @staticmethod
    def zeros(weights: Tensor, coefficients: Coefficients) -> Sums:
        """Sums over no voxel at all, for coefficients ``(C, J)``."""
        cells, size = weights.shape
        new, sides = weights.new_zeros, 2 if coefficients == "scale" else 0
        more = new(cells, sides, ORDER), new(cells), new(cells)
        return Sums(new(cells), new(cells, size), new(cells, size, size), *more)

    def plus(self, other: Sums) -> Sums:
        """The sums over the voxels of both."""
        return Sums(*(mine + theirs for mine, theirs in zip(vars(self).values(), vars(other).values(), strict=True)))

    def weighed(self, factor: float) -> Sums:
        """The sums if every voxel weighed so many times as much."""
        return replace(self, **{name: value * factor for name, value in vars(self).items() if name != "count"})

    def over_processes(self) -> Sums:
        """The sums over the voxels of all processes."""
        return Sums(*over_processes(list(vars(self).values())))


def over_processes(parts: list[Any]) -> list[Any]:
    """Each part summed over all processes of the default group, in their order; works on every backend."""
    if not (dist.is_available() and dist.is_initialized()):
        return parts
    gathered: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(gathered, parts)
    return [sum(part) for part in zip(*gathered, strict=True)]


def sums_over(
    weights: Tensor,
    coefficients: Coefficients,
    logits: Tensor,
    labels: Tensor,
    cell: Tensor,
    weight: Tensor | None = None,
) -> Sums:
    """The sums over voxels at given coefficients; double precision from the first addition on.

    Args:
        weights: Coefficients ``(C, J)``.
        coefficients: What these are.
        logits: ``(K, V)``.
        labels: ``(V,)``.
        cell: ``(V,)``.
        weight: Weight of each voxel, ``(V,)``; 1 by default.
    """
    total, own = Sums.zeros(weights, coefficients), weights.to(logits.device)
    add, size = (_scale, PART) if coefficients == "scale" else (_biased, 4 * PART)  # the latter goes cell by cell
    size *= 1 if logits.device.type == "cpu" else 256
    for first in range(0, labels.numel(), size):
        part = slice(first, first + size)
        found = add(
            own,
            logits[:, part].double(),
            labels[part].long(),
            cell[part].long(),
            None if weight is None else weight[part],
        )
        total = total.plus(Sums(*(one.cpu() for one in found)))
    return total


def _scale(weights: Tensor, logits: Tensor, labels: Tensor, cell: Tensor, mass: Tensor | None) -> tuple[Tensor, ...]:
    # Relative to the labelled class, differences are small and exact where the model is right.
    logits = logits - logits.gather(0, labels.unsqueeze(0))
    z = logits * weights[:, 0].index_select(0, cell)
    top = z.amax(0)
    powers = z.sub_(top).exp_()
    norm = powers.sum(0)
    count = torch.bincount(cell, minlength=len(weights)).double()
    rows = [norm.log().add_(top), *cumulants(logits, powers.div_(norm))]
    side = 2 * cell + (rows[1] > 0)
    if mass is not None:
        rows = [row.mul_(mass) for row in rows]
    sums = torch.stack([torch.bincount(side, row, minlength=2 * len(weights)) for row in rows], 1)
    sides = sums.view(len(weights), 2, -1)
    loss, slope, curvature = sides[..., :3].sum(1).unbind(1)
    weight = count if mass is None else torch.bincount(cell, mass, minlength=len(weights))
    return loss, slope.view(-1, 1), curvature.view(-1, 1, 1), sides[..., 1:], weight, count


def _biased(weights: Tensor, logits: Tensor, labels: Tensor, cell: Tensor, mass: Tensor | None) -> tuple[Tensor, ...]:
    mass = torch.ones_like(logits[0]) if mass is None else mass
    classes, cells = len(logits), len(weights)
    scales = weights.shape[1] - classes
    loss, gradient = torch.zeros_like(weights[:, 0]), torch.zeros_like(weights)
    hessian = torch.diag_embed(gradient)
    count = torch.bincount(cell, minlength=cells).double()
    for number in count.nonzero().flatten().tolist():
        here = (cell == number).nonzero().squeeze(1)
        x, y, w, own = logits[:, here], labels[here], mass[here], weights[number]
        log_p = (x * own[:scales].unsqueeze(1) + own[scales:].unsqueeze(1)).log_softmax(0)
        p = log_p.exp()
        loss[number] = -(log_p.gather(0, y.unsqueeze(0)).squeeze(0) * w).sum()
        excess = p.scatter_add(0, y.unsqueeze(0), -torch.ones_like(w).unsqueeze(0)) * w
        slope = torch.cat([(excess * x).sum(1), excess.sum(1)])
        features = torch.cat([p * x, p])  # (2K, V)
        curvature = -(features * w) @ features.T
        index = torch.arange(classes, device=logits.device)
        curvature[index, index] += (p * x * x * w).sum(1)
        curvature[index, index + classes] += (p * x * w).sum(1)
        curvature[index + classes, index] += (p * x * w).sum(1)
        curvature[index + classes, index + classes] += (p * w).sum(1)
        if scales == 1:  # one scale for all classes
            join = torch.zeros(2 * classes, classes + 1, dtype=torch.float64, device=logits.device)
            join[:classes, 0] = 1
            join[index + classes, index + 1] = 1
            slope, curvature = join.T @ slope, join.T @ curvature @ join
        gradient[number], hessian[number] = slope, curvature
    weight = torch.bincount(cell, mass, minlength=cells)
    return loss, gradient, hessian, loss.new_zeros(cells, 0, ORDER), weight, count


def cumulants(values: Tensor, p: Tensor) -> list[Tensor]:
    """The first ``ORDER`` cumulants ``(V,)`` of ``values`` that have the probabilities ``p``, ``(K, V)`` each.

    They are the derivatives of the logarithm of summed powers.
    """
    mean = (p * values).sum(0)
    away = values - mean
    term, moments = p * away, [torch.ones_like(mean), torch.zeros_like(mean)]
    for _ in range(2, ORDER + 1):
        term.mul_(away)
        moments.append(term.sum(0))
    found = [torch.zeros_like(mean), mean]
    for order in range(2, ORDER + 1):
        value = moments[order]
        for n in range(2, order - 1):
            value = value.addcmul(found[n], moments[order - n], value=-comb(order - 1, n - 1))
        found.append(value)
    return found[1:]
