"""From tensors and options to kernel launches."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from math import ceil
from typing import Any, NamedTuple

import torch
from torch import Tensor

from crac.kernels.census import census
from crac.kernels.loss import fused_loss
from crac.kernels.observe import fused_sums
from crac.kernels.setting import Setting

__all__ = ["Surveyed", "evaluate", "sums", "survey"]

TILE = 512
"""Pixels of a tile: four for each thread of the four warps, so that ``float32`` moves in 16-byte pieces."""
WARPS = 4
WIDTHS = (128, 64, 32)
CENSUS_PROGRAMS = 512
CENSUS_BLOCK = 1024
NARROW_FROM = 1 << 21
"""From this many pixels on, wider labels are first narrowed to a byte: a patch is read nine times, from the cache."""


class Surveyed(NamedTuple):
    """Labels as the kernels read them, the label they ignore, and the tallies of ``census`` if there are any."""

    labels: Tensor
    ignored: int
    tallies: Tensor | None


def survey(labels: Tensor, classes: int, setting: Setting) -> Surveyed:
    """Count and narrow the labels where that pays or is needed; otherwise hand them on as they are."""
    counted = setting.ignore_index is not None or (setting.class_weights is not None and setting.rings is None)
    narrow = labels.element_size() > 1 and labels.numel() >= NARROW_FROM
    ignored = -1 if setting.ignore_index is None else setting.ignore_index
    if not (counted or narrow):
        return Surveyed(labels, ignored, None)
    tallies = torch.empty((2, CENSUS_PROGRAMS), device=labels.device) if counted else None
    codes = torch.empty(labels.shape, dtype=torch.uint8, device=labels.device) if narrow else None
    with _on(labels):
        census[(CENSUS_PROGRAMS,)](
            labels,
            codes,
            setting.class_weights,
            tallies,
            labels.numel(),
            *_extent(labels.shape[1:]),
            *_strides(labels, 1),
            ignored,
            K=classes,
            IGNORE=setting.ignore_index is not None,
            CONTIGUOUS=labels.is_contiguous(),
            PROGRAMS=CENSUS_PROGRAMS,
            BLOCK=CENSUS_BLOCK,
        )
    return Surveyed(labels, ignored, tallies) if codes is None else Surveyed(codes, 254, tallies)


def evaluate(
    logits: Tensor,
    surveyed: Surveyed,
    setting: Setting,
    *,
    value: bool = False,
    gradient: Tensor | None = None,
    upstream: Tensor | None = None,
    skip_unit: bool = False,
) -> Tensor | None:
    """Launch the fused loss.

    Args:
        logits: ``(B, K, *S)``.
        surveyed: From :func:`survey`.
        setting: Which loss.
        value: Whether to return the loss.
        gradient: Where the gradient goes, in the shape of ``logits``; ``None`` for no gradient.
        upstream: Scalar that multiplies the gradient, ``None`` for 1.
        skip_unit: ``gradient`` holds the gradient for 1 already; write another only if ``upstream`` is not 1.
    """
    batch, classes, *size = logits.shape
    pixels = batch * _product(size)
    labels, ignored, tallies = surveyed
    options, grid = _options(logits, setting)
    partials = torch.empty(_product(grid), device=logits.device) if value else None
    share = 1.0 if tallies is not None else 1.0 / pixels
    with _on(logits):
        fused_loss[grid](
            logits,
            labels,
            setting.regions,
            setting.rho,
            setting.lambda_,
            setting.scales,
            setting.class_weights,
            tallies,
            upstream,
            partials,
            gradient,
            *_extent(size),
            *_strides(logits, 2),
            *_strides(labels, 1),
            *(_strides(gradient, 2) if gradient is not None else (0, 0, 0, 0, 0)),
            share,
            share * setting.weight / classes,
            setting.tolerance,
            *(setting.rings or (0.0, 0.0, 0.0, 0.0)),
            ignored,
            SOFT=setting.rings is not None,
            SKIP_UNIT=skip_unit,
            TALLIES=CENSUS_PROGRAMS,
            **options,
        )
    return None if partials is None else partials.sum()


def sums(logits: Tensor, labels: Tensor, setting: Setting) -> tuple[Tensor, Tensor]:
    """Sums of constraint and derivative ``(2, R, K)`` and pixel counts ``(R,)`` of each region, ``float64``."""
    assert setting.rho is not None
    regions, classes = setting.rho.shape
    options, grid = _options(logits, setting)
    partials = torch.empty((_product(grid), 2 * regions * classes + regions), device=logits.device)
    with _on(logits):
        fused_sums[grid](
            logits,
            labels,
            setting.regions,
            setting.rho,
            setting.lambda_,
            setting.scales,
            partials,
            *_extent(logits.shape[2:]),
            *_strides(logits, 2),
            *_strides(labels, 1),
            setting.tolerance,
            -1 if setting.ignore_index is None else setting.ignore_index,
            **options,
        )
    total = partials.sum(0, dtype=torch.float64)
    return total[:-regions].view(2, regions, classes), total[-regions:]


def _options(logits: Tensor, setting: Setting) -> tuple[dict[str, Any], tuple[int, int, int]]:
    """Compile-time constants of a launch, and its grid."""
    batch, classes, *size = logits.shape
    depth, height, width = _extent(size)
    solid = len(size) == 3
    patch = (2 * setting.radius + 1) ** len(size)
    bits = patch.bit_length()
    groups = ceil(classes / (32 // bits))
    # The tile width that wastes the fewest pixels; the widest of those that waste equally few.
    across = min(WIDTHS, key=lambda block: -(-width // block) * block)
    down = TILE // across
    options = {
        "K": classes,
        "R": 1 if setting.rho is None else setting.rho.shape[0],
        "PENALTY": setting.penalty,
        "RADIUS_Z": setting.radius if solid else 0,
        "RADIUS": setting.radius,
        "REPLICATE": setting.replicate,
        "IGNORE": setting.ignore_index is not None,
        "TOLERANT": setting.tolerance > 0,
        "FIELDS": ceil(classes / groups),
        "BITS": bits,
        "BLOCK_Y": down,
        "BLOCK_X": across,
        "num_warps": WARPS,
    }
    return options, (-(-width // across) * -(-height // down), depth, batch)


def _extent(size: Iterable[int]) -> tuple[int, int, int]:
    """Depth, height, width."""
    size = tuple(size)
    return (1, *size) if len(size) == 2 else size  # type: ignore[return-value]


def _strides(tensor: Tensor, leading: int) -> tuple[int, ...]:
    """Strides with one for the depth, which a 2-D image does not have."""
    strides = tensor.stride()
    return strides if len(strides) == leading + 3 else (*strides[:leading], 0, *strides[leading:])


def _product(numbers: Iterable[int]) -> int:
    total = 1
    for number in numbers:
        total *= number
    return total


def _on(tensor: Tensor) -> AbstractContextManager[Any]:
    """Triton launches on the current device, which need not be the tensor's."""
    if tensor.is_cuda and tensor.get_device() != torch.cuda.current_device():
        return torch.cuda.device(tensor.device)
    return nullcontext()
