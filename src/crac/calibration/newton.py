"""The coefficients of every cell with the highest likelihood, from sums over voxels that are costly to take."""

from collections.abc import Callable
from dataclasses import replace
from math import factorial, pi

import torch
from torch import Tensor

from crac.calibration.sums import ORDER, Coefficients, Sums

LOWEST = 0.05
"""Smallest scale, the inverse of the largest temperature; the largest scale is ``1 / LOWEST``."""
RIDGE = 1.0
"""Strength of what holds biases near 0, in voxels."""
TOLERANCE = 1e-9

POWERS = torch.zeros(ORDER, ORDER, dtype=torch.float64)
"""Stirling numbers, which turn derivatives with respect to a scale into those with respect to its logarithm."""
POWERS[0, 0] = 1
for _row in range(1, ORDER):
    POWERS[_row] = torch.arange(ORDER) * POWERS[_row - 1] + POWERS[_row - 1].roll(1)

SumsOf = Callable[[Tensor], Sums]
"""Takes the sums at given coefficients ``(C, J)``."""
Minimum = tuple[Tensor, Sums, int, bool]
"""Coefficients, the sums there, how often sums were taken, and whether the last step was negligible."""


def identity(coefficients: Coefficients, cells: int, num_classes: int) -> Tensor:
    """Coefficients ``(cells, J)`` that change nothing."""
    scales = num_classes if coefficients == "vector" else 1
    biases = 0 if coefficients == "scale" else num_classes
    one = torch.cat([torch.ones(scales, dtype=torch.float64), torch.zeros(biases, dtype=torch.float64)])
    return one.repeat(cells, 1)


def minimise(sums_of: SumsOf, weights: Tensor, coefficients: Coefficients, most: int) -> Minimum:
    """Find the minimum of every cell, from ``weights`` on, with sums taken at most ``most`` times."""
    if coefficients == "scale":
        return _scales(sums_of, weights, most)
    return _biased(sums_of, weights, most, bounded=coefficients == "affine")


def _scales(sums_of: SumsOf, weights: Tensor, most: int) -> Minimum:
    """Single scales: the slope rises with the scale, so its sign says on which side the minimum is."""
    low, high = torch.zeros_like(weights[:, 0]), torch.full_like(weights[:, 0], torch.inf)
    for taken in range(1, most + 1):
        sums, scale = sums_of(weights), weights[:, 0]
        slope = sums.gradient[:, 0]
        low, high = torch.where(slope < 0, scale, low), torch.where(slope > 0, scale, high)
        rough = torch.where(slope == 0, scale, _rough(scale, sums, low, high))
        following, left, curvature = _refined(scale, rough, sums)
        weights = following.unsqueeze(1)
        if bool((left <= TOLERANCE * scale.clamp(min=1)).all()):
            return weights, replace(sums, hessian=curvature.view_as(sums.hessian)), taken, True
    return weights, sums, most, False


def _rough(scale: Tensor, sums: Sums, low: Tensor, high: Tensor) -> Tensor:
    """A step to where the voxels that want a larger scale and those that want a smaller one are in balance.

    What each side wants falls off exponentially, so that Newton's step is taken on its logarithm. A step that leaves
    the bracket halves it, or goes to the bound where the bracket has no end yet.
    """
    smaller, larger = sums.sides[:, 0], sums.sides[:, 1]
    ratio = smaller[:, 0].log() - larger[:, 0].log()
    step = scale - ratio / (smaller[:, 1] / smaller[:, 0] + larger[:, 1] / larger[:, 0])
    step = torch.where(smaller[:, 0] == 0, torch.inf, torch.where(larger[:, 0] == 0, -torch.inf, step))
    middle = (low * high).sqrt()
    step = torch.where(step <= low, torch.where(low > 0, middle, LOWEST), step)
    step = torch.where(step >= high, torch.where(high < torch.inf, middle, 1 / LOWEST), step)
    return step.clamp(LOWEST, 1 / LOWEST)


def _refined(scale: Tensor, rough: Tensor, sums: Sums) -> tuple[Tensor, Tensor, Tensor]:
    """A step that follows all derivatives, how far from the minimum it may still end, and the curvature there.

    The slope is a power series in the logarithm of the scale, which converges up to about a distance of pi / 2. Its
    root is taken where its last terms are small; elsewhere the rough step is kept, and all of it may be left to go.
    """
    slopes = torch.cat([sums.gradient, sums.hessian[:, 0], sums.higher], 1)  # (C, ORDER)
    slopes = (slopes * scale.unsqueeze(1) ** torch.arange(ORDER)) @ POWERS.T
    flattest = (slopes[:, 1] / 4).clamp(min=torch.finfo(slopes.dtype).tiny)
    coarse = (rough / scale).log()
    move = coarse.clamp(-1, 1)
    for _ in range(20):
        move = (move - _series(slopes, move) / torch.maximum(_series(slopes[:, 1:], move), flattest)).clamp(-1, 1)
    following, size = scale * move.exp(), move.abs()
    # What is beyond the last term, of the slope and of the curvature, beside the curvature.
    last = slopes[:, -1].abs() / (4 * flattest) * size / (pi / 2)
    left = last * torch.maximum(size ** (ORDER - 1) / factorial(ORDER - 1), size ** (ORDER - 2) / factorial(ORDER - 2))
    settled = (following > LOWEST) & (following < 1 / LOWEST) & (left <= 0.01 * coarse.abs()) & (size < 0.5)
    following = torch.where(settled, following, rough)
    left = torch.where(settled, left * scale, (rough - scale).abs())
    near = torch.where(settled, move, 0)
    return following, left, _series(slopes[:, 1:], near) / (scale * near.exp())


def _series(derivatives: Tensor, move: Tensor) -> Tensor:
    """The value of a power series, ``(C,)``, from its derivatives ``(C, N)`` at zero."""
    total = torch.zeros_like(move)
    for order in reversed(range(derivatives.shape[1])):
        total = total * move / (order + 1) + derivatives[:, order]
    return total


def _biased(sums_of: SumsOf, weights: Tensor, most: int, *, bounded: bool) -> Minimum:
    """Scales and biases: a step that makes a cell worse is halved, and a ridge holds what the data does not."""
    classes = weights.shape[1] - 1 if bounded else weights.shape[1] // 2
    neutral = identity("affine" if bounded else "vector", 1, classes)
    best, best_loss = weights, torch.full((len(weights),), torch.inf, dtype=torch.float64)
    for taken in range(1, most + 1):
        sums = sums_of(weights)
        ridge = RIDGE * (sums.weight / sums.count.clamp(min=1)).unsqueeze(1).expand_as(weights)
        away = weights - neutral
        loss = sums.loss + (ridge * away**2).sum(1) / 2
        better = (loss <= best_loss * (1 + 1e-12)).unsqueeze(1)
        best, best_loss = torch.where(better, weights, best), torch.minimum(best_loss, loss)
        empty = (sums.count == 0).unsqueeze(1)
        hessian = sums.hessian + torch.diag_embed(ridge + 1e-12 * sums.weight.unsqueeze(1) + empty.double())
        step = _step(weights, sums.gradient + ridge * away, hessian, bounded=bounded)
        following = torch.where(empty, weights, torch.where(better, step, (weights + best) / 2))
        if bool(((following - weights).abs() <= TOLERANCE * weights.abs().clamp(min=1)).all()):
            return following, sums, taken, True
        weights = following
    return best, sums, most, False


def _step(weights: Tensor, gradient: Tensor, hessian: Tensor, *, bounded: bool) -> Tensor:
    """Newton's step, no further than to the bounds of the scale; at a bound that it would cross, the scale is held."""
    move: Tensor = torch.linalg.solve(hessian, gradient)
    if not bounded:
        return weights - move
    scale = weights[:, 0]
    held = torch.where(move[:, 0] > 0, scale <= LOWEST, scale >= 1 / LOWEST).unsqueeze(1)
    free = hessian.clone()
    free[:, 0] = free[:, :, 0] = 0
    free[:, 0, 0] = 1
    move = torch.where(held, torch.linalg.solve(free, torch.cat([0 * gradient[:, :1], gradient[:, 1:]], 1)), move)
    target = (scale - move[:, 0]).clamp(LOWEST, 1 / LOWEST)
    share = torch.where(move[:, 0] == 0, 1, (scale - target) / move[:, 0])
    return torch.cat([target.unsqueeze(1), (weights - share.unsqueeze(1) * move)[:, 1:]], 1)
