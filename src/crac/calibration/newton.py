"""The coefficients of every cell with the highest likelihood, from sums over voxels that are costly to take."""

from collections.abc import Callable
from dataclasses import replace
from math import factorial

import torch
from torch import Tensor

from crac.calibration.sums import ORDER, Coefficients, Sums

LOWEST = 0.05
"""Smallest scale, the inverse of the largest temperature; the largest scale is ``1 / LOWEST``."""
RIDGE = 1.0
"""Strength of what holds biases near 0, in voxels."""
TOLERANCE = 1e-9

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
    larger, smaller = -sums.sides[:, 0, 0], sums.sides[:, 1, 0]
    bend = sums.sides[:, 1, 1] / smaller + sums.sides[:, 0, 1] / larger
    step = scale - (smaller.log() - larger.log()) / bend
    step = torch.where(smaller <= 0, torch.inf, torch.where(larger <= 0, -torch.inf, step))
    middle = (low * high).sqrt()
    step = torch.where(step <= low, torch.where(low > 0, middle, LOWEST), step)
    step = torch.where(step >= high, torch.where(high < torch.inf, middle, 1 / LOWEST), step)
    return step.clamp(LOWEST, 1 / LOWEST)


def _refined(scale: Tensor, rough: Tensor, sums: Sums) -> tuple[Tensor, Tensor, Tensor]:
    """A step that follows all derivatives, how far from the minimum it may still end, and the curvature there.

    The logarithms of both sides are power series in the scale, which converge up to about the scale itself. The root of
    their difference is taken where the last terms are small; elsewhere the rough step is kept, and all of it may be
    left to go.
    """
    sides = torch.tensor([[-1.0], [1.0]]) * sums.sides / torch.tensor([float(factorial(n)) for n in range(ORDER)])
    larger, smaller = _logarithm(sides).unbind(1)
    series = smaller - larger
    slopes = series[:, 1:] * torch.arange(1, ORDER)
    farthest, move = scale / 2, (rough - scale).nan_to_num()
    for _ in range(20):
        flattest = torch.maximum(_value(slopes, move), slopes[:, 0] / 4)
        move = (move - _value(series, move) / flattest).nan_to_num().clamp(-farthest, farthest)
    following, size = scale + move, move.abs()
    # What lies beyond the last term of the series, and of their slopes: the curvature decides how much a cell is drawn
    # towards the others, which an error of it moves by an eighth of the scale at most.
    last = torch.maximum(series[:, -1].abs(), smaller[:, -1].abs()) * size / scale / slopes[:, 0]
    left = last * torch.maximum(size ** (ORDER - 1), ORDER * size ** (ORDER - 2) * scale / 8)
    settled = (following > LOWEST) & (following < 1 / LOWEST) & (size < farthest)
    settled &= left <= 0.01 * (rough - scale).abs()
    curvature = torch.where(settled, _value(smaller, move).exp() * _value(slopes, move), sums.hessian[:, 0, 0])
    left = torch.where(settled, left, (rough - scale).abs())
    return torch.where(settled, following, rough), left, curvature


def _logarithm(series: Tensor) -> Tensor:
    """The coefficients of the logarithm of power series with the coefficients ``(..., N)``."""
    found = [series[..., 0].log()]
    for order in range(1, series.shape[-1]):
        known = (n * found[n] * series[..., order - n] for n in range(1, order))
        found.append((series[..., order] - sum(known, torch.zeros_like(found[0])) / order) / series[..., 0])
    return torch.stack(found, -1)


def _value(series: Tensor, move: Tensor) -> Tensor:
    """The value ``(C,)`` of power series with the coefficients ``(C, N)``."""
    total = torch.zeros_like(move)
    for coefficient in reversed(series.unbind(1)):
        total = total * move + coefficient
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
