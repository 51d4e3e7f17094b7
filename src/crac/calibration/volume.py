"""Calibrators on single volumes, which come without a batch axis, may be stacks of slices, and may be large."""

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

from crac.calibration.base import Calibrator
from crac.calibration.pieces import log_probabilities

SLAB = 2**20
"""Voxels that are calibrated at a time."""


def as_batch(calibrator: Calibrator, volume: Tensor, slice_axis: int = 0, channels: int = 1) -> Tensor:
    """A volume ``(K, *S)``, or labels ``(*S)`` with ``channels=0``, as the calibrator takes it.

    It becomes a batch of slices if the calibrator's regions are those of slices, else a batch of one, as an image does.
    """
    return volume.movedim(slice_axis + channels, 0) if _sliced(calibrator, volume, channels) else volume.unsqueeze(0)


def _sliced(calibrator: Calibrator, volume: Tensor, channels: int = 1) -> bool:
    return calibrator.regions == "slice" and volume.ndim - channels == 3


@torch.no_grad()
def calibrate_volume(
    calibrator: Calibrator,
    scores: Tensor,
    slice_axis: int = 0,
    *,
    from_probabilities: bool = False,
    logarithm: bool = False,
) -> Tensor:
    """Calibrated probabilities ``(K, *S)`` of one volume; needs little more memory than these.

    Args:
        calibrator: A fitted one.
        scores: Logits ``(K, *S)``.
        slice_axis: Axis of ``S`` along which slices follow each other.
        from_probabilities: The scores are probabilities instead.
        logarithm: Return the logarithms of the probabilities.
    """
    batch = as_batch(calibrator, scores, slice_axis)
    planes = list(_planes(batch))
    predicted = torch.empty((batch.shape[0], *batch.shape[2:]), dtype=torch.int16, device=batch.device)
    for whole, part in planes:
        predicted[part] = batch[whole].argmax(1).to(predicted.dtype)
    region = calibrator.regions_of(predicted) if calibrator.by_region else None
    found = torch.empty_like(batch, dtype=torch.promote_types(batch.dtype, torch.float32))
    for whole, part in planes:
        wide = calibrator.checked(log_probabilities(batch[whole]) if from_probabilities else batch[whole])
        own = predicted[part].long()
        cell = calibrator.join(own, None if region is None else region[part])
        found[whole] = calibrator.calibrated(wide, own, cell, logarithm)
    return found.movedim(0, slice_axis + 1) if _sliced(calibrator, scores) else found[0]


def _planes(batch: Tensor) -> Iterator[tuple[tuple[slice, ...], tuple[slice, ...]]]:
    """Parts of a batch ``(B, K, *S)`` of volumes or slices, with and without the axis of the classes."""
    every, axis = slice(None), 0 if batch.ndim == 4 else 2
    size = batch.shape[axis]
    step = size if batch.device.type != "cpu" else max(1, SLAB * size * batch.shape[1] // max(1, batch.numel()))
    for first in range(0, size, step):
        part = slice(first, first + step)
        yield ((part,), (part,)) if axis == 0 else ((every, every, part), (every, part))


def calibrate_slabs(calibrator: Calibrator, slabs: Iterable[Tensor]) -> Iterator[Tensor]:
    """Yield what :func:`calibrate_volume` returns in pieces, from logits ``(K, d, H, W)`` that come in pieces.

    The region of a voxel depends on its neighbours: as many planes as the calibrator looks around are kept back.
    """
    reach = max(calibrator.radii) if calibrator.by_region and calibrator.regions == "volume" else 0
    held: Tensor | None = None
    done = 0  # planes of `held` that were given out and stay for their neighbours
    for slab in slabs:
        held = slab if held is None else torch.cat([held, slab], 1)
        ready = held.shape[1] - reach
        if ready > done:
            yield calibrate_volume(calibrator, held)[:, done:ready]
            start = max(ready - reach, 0)
            held, done = held[:, start:].clone(), ready - start
    if held is not None and held.shape[1] > done:
        yield calibrate_volume(calibrator, held)[:, done:]
