"""Maximum likelihood of calibrated probabilities, cell by cell, from data that is read a few times and never kept.

Calibrated logits are linear in their coefficients, so the negative log-likelihood is convex, and Newton's method finds
its minimum. A first look at some planes keeps a small sample, on which the minimum is found roughly; each pass over the
data then takes a step with the sums over all voxels, in double precision, until what is left to go is negligible. The
result therefore depends neither on the sample nor on how the data was divided into batches or processes. For a single
scale the sums hold eight derivatives, with which one or two passes suffice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from math import comb, factorial
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor

from crac.calibration.pieces import Piece
from crac.errors import InputError

Coefficients = Literal["scale", "affine", "vector"]
"""Coefficients of a cell: one scale of all logits; that and a bias for each class; or both for each class."""

Voxels = Callable[[bool], Iterable[Iterable[Piece]]]
"""Reads the data, batch by batch, each in pieces; only a few of these, where told that a sample is enough."""

LOWEST = 0.05
"""Smallest scale, the inverse of the largest temperature; the largest scale is ``1 / LOWEST``."""
PRIOR = 100
"""A cell's scale is drawn towards the common one as if that had been seen on this many average voxels."""
RIDGE = 1.0
"""Strength of what holds biases near 0, in voxels."""
SAMPLE = 2**8
"""Voxels of each piece and cell that a sample keeps, more of those whose label is a surprise."""
SURPRISES = (1e-4, 1e-2, 0.5)
"""Negative log-likelihoods of a voxel that tell the kinds apart."""
MOST_SAMPLED = 2**19
"""With so many voxels the sample is large enough, in each process."""
PART = 2**16
"""Voxels whose sums are taken at a time, so that a cache holds them; on a GPU 64 times as many."""
PASSES, STEPS = 12, 60
ORDER = 8
"""Derivatives with respect to a single scale."""
TOLERANCE = 1e-9


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

    @staticmethod
    def identity(coefficients: Coefficients, cells: int, num_classes: int) -> Tensor:
        """Coefficients ``(cells, J)`` that change nothing."""
        scales = num_classes if coefficients == "vector" else 1
        biases = 0 if coefficients == "scale" else num_classes
        one = torch.cat([torch.ones(scales, dtype=torch.float64), torch.zeros(biases, dtype=torch.float64)])
        return one.repeat(cells, 1)


@dataclass(frozen=True)
class _Sums:
    """Sums over voxels by cell: negative log-likelihood ``(C,)``, its derivatives, voxels, total weight.

    ``higher`` holds the derivatives of third and higher order for a single scale, and nothing otherwise.
    """

    loss: Tensor
    gradient: Tensor
    hessian: Tensor
    higher: Tensor
    weight: Tensor
    count: Tensor

    def plus(self, other: _Sums) -> _Sums:
        return _Sums(*(mine + theirs for mine, theirs in zip(vars(self).values(), vars(other).values(), strict=True)))

    def weighed(self, factor: float) -> _Sums:
        scaled = {name: value * factor for name, value in vars(self).items() if name != "count"}
        return replace(self, **scaled)


def fit_cells(voxels: Voxels, coefficients: Coefficients, cells: int, num_classes: int, *, by_volume: bool) -> Fit:
    """Find the coefficients of every cell with the highest likelihood.

    Several processes of an initialised ``torch.distributed`` group read a share of the data each and find the same.

    Args:
        voxels: The data.
        coefficients: What is to be found.
        cells: How many cells there are.
        num_classes: ``K``.
        by_volume: Every batch weighs the same, instead of every voxel.

    Raises:
        InputError: There is no voxel.
    """
    batches = 0

    def whole(weights: Tensor) -> _Sums:
        nonlocal batches
        first, total, batches = not batches, _zeros(weights, coefficients), 0
        for pieces in voxels(False):
            watched = many.watch(pieces, SAMPLE // 4) if first else pieces
            own = _of_pieces(((*piece, None) for piece in watched), weights, coefficients)
            number = float(own.count.sum())
            batches += number > 0
            total = total.plus(own.weighed(1 / number) if by_volume and number else own)
        return _over_processes_sums(total)

    # Planes here and there give a start; the pass from it also draws from all planes, should that start be a bad one.
    few, many = _Sample(by_volume), _Sample(by_volume)
    for pieces in voxels(True):
        for _ in few.watch(pieces, SAMPLE):
            pass
        if few.full:
            break
    weights, sums, steps, converged = _minimise(
        whole,
        _start(few, coefficients, cells, num_classes),
        coefficients,
        PASSES,
        lambda: _start(many, coefficients, cells, num_classes),
    )
    if not sums.count.sum():
        raise InputError("batches must hold at least one labelled voxel of the mask; got none")
    undecided = (sums.count > 0) & (sums.hessian[:, 0, 0] <= 0)
    return Fit(
        weights=_shrink(weights, sums, coefficients),
        by_cell=[int(number) for number in sums.count],
        undecided=undecided.tolist(),
        batches=_over_processes([batches])[0],
        passes=steps + 1,
        converged=converged,
    )


def _start(sample: _Sample, coefficients: Coefficients, cells: int, num_classes: int) -> Tensor:
    """The coefficients with the highest likelihood on a sample."""

    def drawn(weights: Tensor) -> _Sums:
        return _over_processes_sums(_of_pieces(pieces, weights, coefficients))

    pieces = sample.joined()
    start = Fit.identity(coefficients, cells, num_classes)
    if coefficients == "scale":  # a perfect cell has its minimum at the bound, to which Newton's steps only creep
        highest = torch.full_like(start, 1 / LOWEST)
        perfect = (drawn(start).gradient < 0) & (drawn(highest).gradient <= 0)
        start = torch.where(perfect, highest, start)
    return _minimise(drawn, start, coefficients, STEPS)[0]


class _Sample:
    """Voxels kept on the CPU, with what each of them stands for.

    They are evenly spaced, and of each piece and cell as many whose label is a surprise as others: these are few where
    the model is good, and decide the temperature there.
    """

    def __init__(self, by_volume: bool) -> None:
        self._by_volume = by_volume
        self._parts: list[tuple[Tensor, ...]] = []
        self._size = 0

    @property
    def full(self) -> bool:
        return self._size >= MOST_SAMPLED

    def watch(self, pieces: Iterable[Piece], most: int) -> Iterator[Piece]:
        """Yield the pieces of a batch; keep ``most`` voxels of the least surprising kind, 8 times as many of others."""
        own: list[tuple[Tensor, ...]] = []
        for logits, labels, cell in pieces:
            if not self.full:
                surprise = logits.logsumexp(0) - logits.gather(0, labels.unsqueeze(0)).squeeze(0)
                kinds = torch.tensor(SURPRISES, dtype=surprise.dtype, device=surprise.device)
                group = (len(SURPRISES) + 1) * cell + torch.bucketize(surprise, kinds)
                for number in torch.bincount(group).nonzero().flatten().tolist():
                    where = (group == number).nonzero().squeeze(1)
                    step = -(-where.numel() // (8 * most if number % (len(SURPRISES) + 1) else most))
                    where = where[::step]
                    each = torch.full((where.numel(),), step, dtype=torch.float64)
                    own.append((logits[:, where].cpu(), labels[where].cpu(), cell[where].cpu(), each))
            yield logits, labels, cell
        total = float(sum(part[3].sum() for part in own)) if self._by_volume else 1.0
        self._parts += [(*part[:3], part[3] / total) for part in own]
        self._size += sum(part[3].numel() for part in own)

    def joined(self) -> list[tuple[Tensor, Tensor, Tensor, Tensor | None]]:
        """All voxels as one piece, or none."""
        joined = [torch.cat(parts, -1) for parts in zip(*self._parts, strict=True)]
        return [(joined[0], joined[1], joined[2], joined[3])] if joined else []


def _of_pieces(
    pieces: Iterable[tuple[Tensor, Tensor, Tensor, Tensor | None]], weights: Tensor, coefficients: Coefficients
) -> _Sums:
    """The sums over pieces in this process; without weights every voxel weighs 1."""
    total = _zeros(weights, coefficients)
    for logits, labels, cell, weight in pieces:
        size = PART if logits.device.type == "cpu" else 64 * PART
        for first in range(0, labels.numel(), size):
            part = slice(first, first + size)
            own = None if weight is None else weight[part]
            total = total.plus(_sums(weights, coefficients, logits[:, part], labels[part], cell[part], own))
    return total


def _minimise(
    sums_of: Callable[[Tensor], _Sums],
    weights: Tensor,
    coefficients: Coefficients,
    most: int,
    better_start: Callable[[], Tensor] | None = None,
) -> tuple[Tensor, _Sums, int, bool]:
    """Newton's method, every cell by itself; a step that leaves a bracket, or makes a cell worse, is shortened.

    Cells that turn out to be far from their minimum after the first sums take up a ``better_start``, if there is one.

    Returns:
        The coefficients, the sums there, how often sums were taken, and whether it converged.
    """
    size = weights.shape[1]
    identity = Fit.identity(coefficients, 1, {"scale": 1, "affine": size - 1, "vector": size // 2}[coefficients])
    strength = 0.0 if coefficients == "scale" else RIDGE
    best, best_loss = weights, torch.full((len(weights),), torch.inf, dtype=torch.float64)
    low, high = torch.full_like(weights, LOWEST), torch.full_like(weights, 1 / LOWEST)
    for taken in range(1, most + 1):
        sums = sums_of(weights)
        ridge = strength * (sums.weight / sums.count.clamp(min=1)).unsqueeze(1).expand_as(weights)
        away = weights - identity
        loss = sums.loss + (ridge * away**2).sum(1) / 2
        better = (loss <= best_loss * (1 + 1e-12)).unsqueeze(1)
        best, best_loss = torch.where(better, weights, best), torch.minimum(best_loss, loss)
        empty = (sums.count == 0).unsqueeze(1)
        hessian = sums.hessian + torch.diag_embed(ridge + 1e-12 * sums.weight.unsqueeze(1) + empty.double())
        step = _step(weights, sums.gradient + ridge * away, hessian, bounded=coefficients != "vector")
        enough = TOLERANCE * weights.abs().clamp(min=1)
        if coefficients == "scale":
            # The slope's sign says on which side the minimum is; a step that leaves the bracket halves it.
            low = torch.where(sums.gradient <= 0, weights, low)
            high = torch.where(sums.gradient >= 0, weights, high)
            step, left = _refined(weights, step, sums, hessian)
            beyond = ((step <= low) | (step >= high)) & ((step - weights).abs() > enough)
            beyond &= (step > LOWEST) & (step < 1 / LOWEST)
            following = torch.where(beyond, (low * high).sqrt(), step)
            left = torch.where(beyond, following - weights, left)
        else:
            following = torch.where(better, step, (weights + best) / 2)
            left = following - weights
        following, left = torch.where(empty, weights, following), torch.where(empty, 0, left)
        if bool((left.abs() <= enough).all()):
            return following, _moved(sums, following - weights), taken, True
        if better_start is not None and taken == 1:
            share = 1e-3 if coefficients == "scale" else 0.1
            far = (left.abs() > share * weights.abs().clamp(min=LOWEST if coefficients == "scale" else 1)).any(1, True)
            following = torch.where(far & ~empty, better_start(), following)
        weights = following
    return best, sums, most, False


def _refined(weights: Tensor, step: Tensor, sums: _Sums, hessian: Tensor) -> tuple[Tensor, Tensor]:
    """A step of single scales that follows all derivatives, and how far from the minimum it may still end.

    The slope is a power series in the scale. Its root is taken where the series has settled there, as its last term
    tells; elsewhere Newton's step is kept, and all of it is what may be left to go.
    """
    slopes = torch.cat([sums.gradient, hessian[:, 0], sums.higher], 1)  # (C, ORDER)
    newton = (step - weights).squeeze(1)
    move = newton
    for _ in range(20):
        move = move - _series(slopes, move) / _series(slopes[:, 1:], move).clamp(min=slopes[:, 1] / 4)
    inside = (weights[:, 0] + move > LOWEST) & (weights[:, 0] + move < 1 / LOWEST)
    # Terms fall off by about the size of the move beside the scale; the curvature must have settled as well.
    last = slopes[:, -1].abs() / slopes[:, 1] * move.abs() / weights[:, 0]
    left = last * torch.maximum(
        move.abs() ** (ORDER - 1) / factorial(ORDER - 1), move.abs() ** (ORDER - 2) / factorial(ORDER - 2)
    )
    settled = inside & (left <= 0.01 * newton.abs()) & (move.abs() <= 2 * newton.abs())
    move, left = torch.where(settled, move, newton), torch.where(settled, left, newton)
    return weights + move.unsqueeze(1), left.unsqueeze(1)


def _series(derivatives: Tensor, move: Tensor) -> Tensor:
    """The value of a power series, ``(C,)``, from its derivatives ``(C, N)`` at zero."""
    total = torch.zeros_like(move)
    for order in reversed(range(derivatives.shape[1])):
        total = total * move / (order + 1) + derivatives[:, order]
    return total


def _moved(sums: _Sums, move: Tensor) -> _Sums:
    """The sums a small step further, as far as they have the derivatives for it."""
    if not sums.higher.numel():
        return sums
    curvature = _series(torch.cat([sums.hessian[:, 0], sums.higher], 1), move[:, 0])
    return replace(sums, hessian=curvature.view_as(sums.hessian))


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


def _shrink(weights: Tensor, sums: _Sums, coefficients: Coefficients) -> Tensor:
    """Draw each scale towards the common one, by how much the cell's voxels say about it; empty cells take that one.

    Where there are biases, the ridge already holds the coefficients of small cells, and only empty cells change.
    """
    information = sums.hessian[:, 0, 0]
    total = information.sum()
    if len(weights) == 1 or total <= 0:
        return weights
    scale = weights[:, 0]
    common = (information * scale).sum() / total
    prior = PRIOR * total / sums.count.sum()
    drawn = (information * scale + prior * common) / (information + prior)
    if coefficients != "scale":
        drawn = torch.where(sums.count > 0, scale, common)
    return torch.cat([drawn.unsqueeze(1), weights[:, 1:]], 1)


def _zeros(weights: Tensor, coefficients: Coefficients) -> _Sums:
    cells, size = weights.shape
    new, higher = weights.new_zeros, ORDER - 2 if coefficients == "scale" else 0
    return _Sums(new(cells), new(cells, size), new(cells, size, size), new(cells, higher), new(cells), new(cells))


def _sums(
    weights: Tensor, coefficients: Coefficients, logits: Tensor, labels: Tensor, cell: Tensor, weight: Tensor | None
) -> _Sums:
    """The sums of some voxels at given coefficients; double precision from the first addition on."""
    classes, device, cells = logits.shape[0], logits.device, len(weights)
    total = _zeros(weights.to(device), coefficients)
    count = torch.bincount(cell, minlength=cells).double()
    mass = count if weight is None else torch.bincount(cell, weight, minlength=cells)
    labels = labels.long()
    if coefficients == "scale":
        # Relative to the labelled class, differences are small and exact where the model is right.
        logits = logits.double()
        logits = logits - logits.gather(0, labels.unsqueeze(0))
        z = logits * weights[:, 0].to(device)[cell]
        top = z.amax(0)
        powers = (z - top).exp_()
        norm = powers.sum(0)
        rows = [norm.log() + top, *_cumulants(logits, powers / norm)]
        if weight is not None:
            rows = [row * weight for row in rows]
        loss, slope, curvature, *more = (torch.bincount(cell, row, minlength=cells) for row in rows)
        parts = loss, slope.unsqueeze(1), curvature.view(-1, 1, 1), torch.stack(more, 1), mass, count
        return _Sums(*(part.cpu() for part in parts))
    weight = torch.ones(labels.numel(), dtype=torch.float64, device=device) if weight is None else weight
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
    return _Sums(*(part.cpu() for part in (total.loss, total.gradient, total.hessian, total.higher, mass, count)))


def _cumulants(values: Tensor, p: Tensor) -> list[Tensor]:
    """The first ``ORDER`` cumulants ``(V,)`` of ``values`` that have the probabilities ``p``, ``(K, V)`` each.

    They are the derivatives of the logarithm of summed powers.
    """
    mean = (p * values).sum(0)
    away = values - mean
    term, moments = p * away, [torch.ones_like(mean), torch.zeros_like(mean)]
    for _ in range(2, ORDER + 1):
        term = term * away
        moments.append(term.sum(0))
    found = [torch.zeros_like(mean), mean]
    for order in range(2, ORDER + 1):
        known = (comb(order - 1, n - 1) * found[n] * moments[order - n] for n in range(2, order - 1))
        found.append(moments[order] - sum(known, torch.zeros_like(mean)))
    return found[1:]


def _over_processes_sums(sums: _Sums) -> _Sums:
    return _Sums(*_over_processes(list(vars(sums).values())))


def _over_processes(parts: list[Any]) -> list[Any]:
    """Each part summed over all processes of the default group, in their order; works on every backend."""
    if not (dist.is_available() and dist.is_initialized()):
        return parts
    gathered: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(gathered, parts)
    return [sum(part) for part in zip(*gathered, strict=True)]
