"""The voxels a calibrator is fitted on, a few planes of a volume at a time.

Volumes may be mapped from a file in half precision: only the planes in hand, and the voxels that count, are converted.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from crac.errors import InputError
from crac.functional.patches import check_integers
from crac.metrics.masks import Mask, select_voxels

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

Piece = tuple[Tensor, Tensor, Tensor]
"""Logits ``(K, V)``, labels ``(V,)`` and cells ``(V,)`` of some voxels."""


def log_probabilities(probabilities: Tensor) -> Tensor:
    """Logits of a model that only gives probabilities: their logarithms, which softmax turns back into them."""
    wide = probabilities if probabilities.dtype == torch.float64 else probabilities.float()
    return wide.clamp(min=SMALLEST).log()


class Choice(NamedTuple):
    """Which voxels count, and what the scores are: arguments of :meth:`~crac.calibration.Calibrator.fit`."""

    mask: Mask
    ignore_index: int | None
    from_probabilities: bool


def pieces(
    calibrator: Calibrator, scores: Tensor, labels: Tensor, choice: Choice, few: float | None = None
) -> Iterator[Piece]:
    """The voxels of a batch ``(B, K, *S)`` that count.

    Where a sample is enough, ``few`` is a number between 0 and 1 that says which few planes are looked at.

    Raises:
        InputError: Scores are not finite, or labels do not match them.
    """
    calibrator.check_shape(scores)
    labels = _matching(labels, scores)
    if scores.ndim == 4:
        yield from _of_slabs(calibrator, scores, labels, choice, few)
        return
    for volume, truth in zip(scores, labels, strict=True):
        if calibrator.regions == "slice":
            yield from _of_slabs(calibrator, volume.movedim(1, 0), truth, choice, few)
        else:
            yield from _of_slabs(calibrator, volume.unsqueeze(0), truth.unsqueeze(0), choice, few)


def _of_slabs(
    calibrator: Calibrator, scores: Tensor, labels: Tensor, choice: Choice, few: float | None
) -> Iterator[Piece]:
    """Voxels of images, divided along their batch, or of one volume, divided along its first axis."""
    axis = scores.ndim - 4
    size = labels.shape[axis]
    # What a plane is told by its neighbours: regions, and the foreground nearby.
    reach = [max(calibrator.radii)] * calibrator.by_region + [BAND] * (choice.mask == "band")
    halo = max(reach, default=0) if axis else 0
    predicted = torch.empty(labels.shape, dtype=_narrow(scores.shape[1]), device=labels.device)
    done = 0
    for start, stop in _slabs(labels, size, few):
        near = slice(max(start - halo, 0), min(stop + halo, size))
        fresh = slice(max(near.start, done), near.stop)
        done = near.stop
        predicted[_along(axis, fresh)] = _predicted(scores[_along(2 * axis, fresh)])
        seen, truth = predicted[_along(axis, near)], labels[_along(axis, near)]
        # Of the scores, a mask only asks whether the background is ahead.
        ahead = torch.stack([torch.zeros_like(seen), seen], 1)
        keep = select_voxels(choice.mask, ahead, truth, band=BAND, ignore_index=choice.ignore_index)
        inner = _along(axis, slice(start - near.start, stop - near.start))
        chosen = None if keep is None else keep[inner].flatten().nonzero().squeeze(1)
        if (truth[inner].numel() if chosen is None else chosen.numel()) == 0:
            continue
        here = [seen, truth] if not calibrator.by_region else [seen, truth, calibrator.regions_of(seen)]
        maps = [_chosen(one[inner], chosen).long() for one in here]
        _check_range(maps[1], calibrator.num_classes)
        parts = [_chosen(scores[:, k][_along(axis, slice(start, stop))], chosen) for k in range(scores.shape[1])]
        logits = torch.stack(parts)
        logits = log_probabilities(logits) if choice.from_probabilities else logits
        yield calibrator.widened(logits, 0), maps[1], calibrator.join(maps[0], *maps[2:])


def _slabs(labels: Tensor, size: int, few: float | None) -> list[tuple[int, int]]:
    step = size
    if labels.device.type == "cpu":
        step = max(1, (SLAB if few is None else SLAB // 8) * size // max(1, labels.numel()))
    slabs = [(first, min(first + step, size)) for first in range(0, size, max(step, 1))]
    if few is None or len(slabs) <= FEW:
        return slabs
    return [slabs[int((number + few) * len(slabs) / FEW)] for number in range(FEW)]


def _along(axis: int, part: slice) -> tuple[slice, ...]:
    return (slice(None),) * axis + (part,)


def _chosen(values: Tensor, chosen: Tensor | None) -> Tensor:
    flat = values.flatten()
    return flat if chosen is None else flat.index_select(0, chosen)


def _narrow(classes: int) -> torch.dtype:
    return torch.uint8 if classes <= 256 else torch.int16


def _predicted(scores: Tensor) -> Tensor:
    """The first class with the largest score, ``(B, *S)``, in blocks that a cache holds."""
    found = torch.zeros((scores.shape[0], *scores.shape[2:]), dtype=_narrow(scores.shape[1]), device=scores.device)
    for image, classes in zip(found, scores, strict=True):
        flat, planes = image.view(-1), [plane.flatten() for plane in classes]
        block = BLOCK * torch.get_num_threads() if scores.device.type == "cpu" else max(1, flat.numel())
        for first in range(0, flat.numel(), block):
            part = slice(first, first + block)
            best: Tensor | None = None
            for number, plane in enumerate(planes):
                wide = plane[part] if plane.dtype == torch.float64 else plane[part].float()
                low, high = wide.aminmax()
                if not math.isfinite(low.item() - high.item()):
                    raise InputError("logits must be finite; got NaN or infinite values")
                if best is None:
                    best = wide
                else:
                    flat[part].masked_fill_(wide > best, number)
                    best = torch.maximum(best, wide)
    return found


def _matching(labels: Tensor, scores: Tensor) -> Tensor:
    """The labels as ``(B, *S)``; what cannot belong to the scores is refused."""
    check_integers(labels)
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
