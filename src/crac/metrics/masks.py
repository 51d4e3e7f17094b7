"""Which voxels of a batch are measured."""

import math
from collections.abc import Iterable, Sequence
from typing import Literal, get_args

import torch
from torch import Tensor

from crac.errors import InputError, one_of
from crac.functional.distances import within

Mask = Literal["label_foreground", "predicted_foreground", "union_foreground", "band", "all"]
MASKS = get_args(Mask)
FARTHEST = 1_000_000
"""No distance that is asked for is larger, in millimetres or voxels."""


def holding(labels: Tensor, ignore_index: int | None) -> Tensor:
    """Integer labels in a type that holds the ignored one: a byte compared with 300 would be compared with 44."""
    if ignore_index is None or torch.iinfo(labels.dtype).min <= ignore_index <= torch.iinfo(labels.dtype).max:
        return labels
    return labels.long()


def select_voxels(
    mask: Mask,
    scores: Tensor,
    labels: Tensor,
    *,
    band: float = 5.0,
    spacing: Sequence[float] | None = None,
    ignore_index: int | None = None,
) -> Tensor | None:
    """Boolean ``(B, *S)`` of the voxels that count, None for all of them.

    Args:
        mask: ``"label_foreground"``, ``"predicted_foreground"``, ``"union_foreground"`` (either), ``"band"`` (within
            ``band`` of either) or ``"all"``.
        scores: Logits or probabilities ``(B, K, *S)``.
        labels: ``(B, *S)``.
        band: Largest distance to the foreground of the voxels of the mask ``"band"``, in the unit of ``spacing``.
        spacing: Size of a voxel along each axis of ``S``, 1 by default.
        ignore_index: Label of voxels that never count.
    """
    ahead = None if mask in ("label_foreground", "all") else scores[:, 0] < scores[:, 1:].amax(1)
    return select_predicted(mask, ahead, labels, band=band, spacing=spacing, ignore_index=ignore_index)


def select_predicted(
    mask: Mask,
    foreground: Tensor | None,
    labels: Tensor,
    *,
    band: float = 5.0,
    spacing: Sequence[float] | None = None,
    ignore_index: int | None = None,
) -> Tensor | None:
    """What :func:`select_voxels` returns, where it is known which voxels are predicted to be ``foreground``.

    That is a boolean ``(B, *S)``, which the masks ``"label_foreground"`` and ``"all"`` do not need.
    """
    if mask not in MASKS:
        raise one_of("mask", mask, MASKS)
    dims = labels.ndim - 1
    if spacing is not None and not (
        isinstance(spacing, Iterable) and len(spacing) == dims and all(0 < side < math.inf for side in spacing)
    ):
        raise InputError(f"spacing must be {dims} positive numbers, one per axis; got {spacing!r}")
    known = None if ignore_index is None else labels != ignore_index
    keep: Tensor | None = None
    if mask != "all":
        if mask != "predicted_foreground":
            keep = labels.bool()
        if mask != "label_foreground" and foreground is not None:
            keep = foreground if keep is None else keep | foreground
        if mask == "band" and keep is not None:
            keep = keep if known is None else keep & known  # what is unknown has no neighbourhood either
            keep = within(keep, dims, band, spacing)
    return known if keep is None else keep if known is None else keep & known
