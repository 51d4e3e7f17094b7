"""The voxels a calibrator is fitted on, a few planes of a volume at a time.

Volumes may be mapped from a file in half precision: only the planes in hand, and the voxels that count, are converted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from crac.errors import InputError
from crac.functional.patches import check_integers, in_strips
from crac.metrics.counts import RANGE_TOLERANCE, SUM_TOLERANCE
from crac.metrics.masks import Mask, holding, select_predicted

if TYPE_CHECKING:
    from crac.calibration.base import Calibrator

SLAB = 2**23
"""Voxels of a slab; more would need more memory, fewer would be mostly the planes that neighbouring slabs share."""
FEW = 4
"""Slabs of an eighth of that size that a sample is drawn from."""
BLOCK = 2**16
"""Voxels whose classes are compared at a time."""
BAND = 5
"""Planes within which the mask ``"band"`` looks for foreground."""
SMALLEST = 1e-7
"""Probabilities below it are raised to it before their logarithm is taken."""

NEAR, LATTICE = 3, 32
"""Background further than that from any foreground is represented by so many rows and columns of a slice."""
LARGE = 128
"""Sides of a slice from which on this is done."""


class Piece(NamedTuple):
    """Logits ``(K, V)``, labels ``(V,)`` and cells ``(V,)`` of some voxels, and how many voxels each stands for."""

    logits: Tensor
    labels: Tensor
    cell: Tensor
    stands_for: int = 1


def log_probabilities(probabilities: Tensor) -> Tensor:
    """Logits of a model that only gives probabilities: their logarithms, which softmax turns back into them."""
    wide = probabilities if probabilities.dtype == torch.float64 else probabilities.float()
    return wide.clamp(min=SMALLEST).log()


class Choice(NamedTuple):
    """Which voxels count, and what the scores are: arguments of :meth:`~crac.calibration.Calibrator.fit`."""

    mask: Mask
    ignore_index: int | None
    from_probabilities: bool


@dataclass(frozen=True)
class Slab:
    """Neighbouring planes of a volume, or images of a batch, whose voxels can be asked for.

    Args:
        calibrator: It says what cells are.
        scores: ``(B, K, *S)``; of volumes only one.
        labels: ``(B, *S)``.
        choice: Which voxels count.
        start, stop: The planes, along the first axis of a volume or along the batch of images.
        sample: Whether foreground in other planes may be overlooked by the mask ``"band"``, which saves reading them.
    """

    calibrator: Calibrator
    scores: Tensor
    labels: Tensor
    choice: Choice
    start: int
    stop: int
    sample: bool = False

    @torch.no_grad()
    def voxels(self) -> list[Piece]:
        """The voxels that count, if there are any.

        Raises:
            InputError: Scores are not finite or no probabilities, or labels lie outside the classes.
        """
        axis, side = self.scores.ndim - 4, min(self.labels.shape[-2:])
        step = side // LATTICE if self.choice.mask == "all" and side >= LARGE else 1
        mask: Mask = "band" if step > 1 else self.choice.mask
        band = NEAR if step > 1 else BAND
        # What a plane is told by its neighbours: regions, and the foreground nearby.
        reach = [max(self.calibrator.radii)] * self.calibrator.by_region
        reach += [band] * (mask == "band" and not self.sample)
        halo = max(reach, default=0) if axis else 0
        near = slice(max(self.start - halo, 0), self.stop + halo)
        inner = _along(axis, slice(self.start - near.start, self.stop - near.start))
        truth, scores = self.labels[_along(axis, near)], self.scores[_along(2 * axis, near)]
        seen = predicted_classes(scores, self.choice.from_probabilities)
        keep = select_predicted(mask, seen.bool(), truth, band=band, ignore_index=self.choice.ignore_index)
        chosen = {1: None if keep is None else _places(keep[inner].flatten())}
        if keep is not None and step > 1:
            chosen[step**2] = self._far(keep[inner], truth[inner], step)
        chosen = {number: places for number, places in chosen.items() if places is None or places.numel()}
        if not chosen or not truth[inner].numel():
            return []
        here = [seen, truth]
        if self.calibrator.by_region:
            here.append(in_strips(self._regions, seen, max(self.calibrator.radii)))
        maps = [one[inner].flatten() for one in here]
        return [self._piece(maps, places, number) for number, places in chosen.items()]

    def _regions(self, seen: Tensor) -> Tensor:
        """The regions in a strip; most strips of an image hold one class."""
        low, high = seen.aminmax()
        return torch.zeros_like(seen, dtype=torch.uint8) if low == high else self.calibrator.regions_of(seen)

    def _piece(self, maps: list[Tensor], places: Tensor | None, stands_for: int) -> Piece:
        """The voxels at these places, of flat maps of predicted classes, labels and, if any, regions."""
        seen, labels, *regions = (_chosen(one, places) for one in maps)
        _check_range(labels, self.calibrator.num_classes)
        axis = self.scores.ndim - 4
        planes = self.scores[_along(2 * axis, slice(self.start, self.stop))].unbind(1)
        logits = torch.stack([_chosen(plane, places) for plane in planes])
        logits = log_probabilities(logits) if self.choice.from_probabilities else logits
        logits = self.calibrator.widened(logits, 0) if self.calibrator.coefficients == "vector" else logits
        return Piece(logits, labels, self.calibrator.join(seen.int(), *regions), stands_for)

    def _far(self, near: Tensor, labels: Tensor, step: int) -> Tensor:
        """The places of some voxels that are not ``near`` foreground, one in each square of ``step`` by ``step``.

        These are background that is predicted as such, nearly always with certainty: many, and much alike. Which are
        taken depends on their place in the slice only, not on how the data was divided.
        """
        every = slice(step // 2, None, step)
        far = ~near[..., every, every]
        if self.choice.ignore_index is not None:
            far &= labels[..., every, every] != self.choice.ignore_index
        places = far.nonzero()
        places[:, -2:] = places[:, -2:] * step + step // 2
        sizes = torch.tensor([*near.shape[1:], 1], device=places.device).flip(0).cumprod(0).flip(0)
        return (places * sizes).sum(1)


def slabs(
    calibrator: Calibrator, scores: Tensor, labels: Tensor, choice: Choice, few: float | None = None
) -> list[Slab]:
    """A batch ``(B, K, *S)`` in slabs.

    Where a sample is enough, ``few`` is a number between 0 and 1 that says which few planes are looked at.

    Raises:
        InputError: The scores are no logits of these classes, or the labels do not match them.
    """
    calibrator.check_shape(scores)
    labels = holding(_matching(labels, scores), choice.ignore_index)
    pairs = [(scores, labels)]
    if scores.ndim == 5 and calibrator.regions == "slice":
        pairs = [(volume.movedim(1, 0), truth) for volume, truth in zip(scores, labels, strict=True)]
    elif scores.ndim == 5:
        pairs = [(scores[n : n + 1], labels[n : n + 1]) for n in range(len(scores))]
    return [
        Slab(calibrator, images, truth, choice, *ends, sample=few is not None)
        for images, truth in pairs
        for ends in _ends(truth, truth.shape[images.ndim - 4], few)
    ]


def _ends(labels: Tensor, size: int, few: float | None) -> list[tuple[int, int]]:
    step = size
    if labels.device.type == "cpu":
        step = max(1, (SLAB if few is None else SLAB // 8) * size // max(1, labels.numel()))
    ends = [(first, min(first + step, size)) for first in range(0, size, max(step, 1))]
    if few is None or len(ends) <= FEW:
        return ends
    return [ends[int((number + few) * len(ends) / FEW)] for number in range(FEW)]


def _along(axis: int, part: slice) -> tuple[slice, ...]:
    return (slice(None),) * axis + (part,)


def _chosen(values: Tensor, chosen: Tensor | None) -> Tensor:
    flat = values.flatten()
    return flat if chosen is None else flat.index_select(0, chosen)


def _places(keep: Tensor) -> Tensor:
    """Where a flat mask is true; by numpy on a CPU, which is many times as fast there."""
    if keep.device.type == "cpu":
        return torch.from_numpy(np.flatnonzero(keep.numpy()))
    return keep.nonzero().squeeze(1)


def _greater(one: Tensor, other: Tensor) -> Tensor:
    """Where one is greater than the other, as bytes; by numpy on a CPU."""
    if one.device.type == "cpu":
        return torch.from_numpy(np.greater(one.detach().numpy(), other.detach().numpy()).view(np.uint8))
    return (one > other).to(torch.uint8)


def predicted_classes(scores: Tensor, from_probabilities: bool = False) -> Tensor:
    """The first class with the largest score, ``(B, *S)``, in blocks that a cache holds.

    Raises:
        InputError: Scores are not finite, or said to be probabilities and are none.
    """
    narrow = torch.uint8 if scores.shape[1] <= 256 else torch.int32
    found = torch.zeros((scores.shape[0], *scores.shape[2:]), dtype=narrow, device=scores.device)
    for image, classes in zip(found, scores, strict=True):
        flat, planes = image.view(-1), [plane.flatten() for plane in classes]
        block = BLOCK if scores.device.type == "cpu" else max(1, flat.numel())
        for first in range(0, flat.numel(), block):
            part = slice(first, first + block)
            _compare([plane[part] for plane in planes], flat[part], from_probabilities)
    return found


def _compare(planes: list[Tensor], found: Tensor, from_probabilities: bool) -> None:
    """Write the first class with the largest score into what holds zeros."""
    low, high = torch.stack([torch.stack(plane.aminmax()) for plane in planes], 1).tolist()
    if not all(map(math.isfinite, low + high)):
        raise InputError("logits must be finite; got NaN or infinite values")
    if from_probabilities and not (min(low) > -RANGE_TOLERANCE and max(high) < 1 + SUM_TOLERANCE):
        raise InputError(f"probabilities must lie between 0 and 1; got values from {min(low):.4g} to {max(high):.4g}")
    leader = high.index(max(high))
    if all(low[leader] > other for number, other in enumerate(high) if number != leader):  # most often the background
        found.fill_(leader)
        return
    best, *others = (plane if plane.dtype == torch.float64 else plane.float() for plane in planes)
    for number, plane in enumerate(others, start=1):
        torch.maximum(found, _greater(plane, best).to(found.dtype).mul_(number), out=found)
        best = torch.maximum(best, plane)


def _matching(labels: Tensor, scores: Tensor) -> Tensor:
    """The labels as ``(B, *S)``; what cannot belong to the scores is refused."""
    labels = check_integers(labels)
    labels = labels.squeeze(1) if labels.ndim == scores.ndim and labels.shape[1] == 1 else labels
    shape = (scores.shape[0], *scores.shape[2:])
    if labels.shape != shape or labels.device != scores.device:
        raise InputError(
            f"labels must have shape {shape} on {scores.device} to match the logits; "
            f"got {tuple(labels.shape)} on {labels.device}"
        )
    return labels


def _check_range(labels: Tensor, classes: int) -> None:
    low, high = map(int, labels.aminmax())
    if low < 0 or high >= classes:
        raise InputError(f"labels must lie in 0..{classes - 1}; got {low if low < 0 else high}")
