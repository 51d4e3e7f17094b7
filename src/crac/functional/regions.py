"""Which pixels lie inside an organ and which on a boundary."""

from collections.abc import Sequence

import torch
from torch import Tensor

from crac.errors import InputError
from crac.functional.patches import Border, check_labels, pad, running


def check_radii(radii: Sequence[int]) -> tuple[int, ...]:
    """Return the radii, if they grow and reach the next pixel."""
    whole = isinstance(radii, Sequence) and all(isinstance(radius, int) for radius in radii)
    if not whole or not radii or min(radii) < 1 or list(radii) != sorted(set(radii)):
        raise InputError(f"radii must be growing whole numbers of at least 1; got {radii!r}")
    return tuple(radii)


def region_map(
    labels: Tensor, border: Border = "replicate", radii: Sequence[int] = (1,), ignore_index: int | None = None
) -> Tensor:
    """Return the region of every pixel: 0 inside, the highest number on the boundary.

    A pixel is *mixed at radius r* when the patch of side ``2 r + 1`` around it holds more than one class,
    that is, when a pixel of another class lies within Chebyshev distance ``r``. The region is the number of
    ``radii`` at which the pixel is mixed: with the default single radius, 0 is inner and 1 is outer; with
    ``radii=(1, 3)`` there are three bands, 2 touching the boundary, 1 near it, 0 away from it.

    Args:
        labels: Integers, ``(B, *S)`` with 2 or 3 spatial dimensions.
        border: What lies outside the image: ``"replicate"`` (the edge goes on) or ``"background"`` (class 0).
        radii: Growing patch radii, one per boundary.
        ignore_index: Label of pixels that count as no class at all.

    Returns:
        ``(B, *S)`` tensor of ``uint8``; ignored pixels are in region 0.
    """
    labels, dims = check_labels(labels, ignore_index)
    low, high = bounds(labels, ignore_index)
    valid = None if ignore_index is None else labels != ignore_index
    region = torch.zeros(labels.shape, dtype=torch.uint8, device=labels.device)
    for radius in check_radii(radii):
        padded = pad(low, dims, radius, border)
        found = mixed(padded, padded if high is low else pad(high, dims, radius, border), dims, radius)
        region += found if valid is None else found & valid
    return region


def bounds(labels: Tensor, ignore_index: int | None) -> tuple[Tensor, Tensor]:
    """Return labels to take the minimum and the maximum of: ignored pixels can be neither."""
    if ignore_index is None:
        return labels, labels
    info = torch.iinfo(labels.dtype)
    valid = labels != ignore_index
    return torch.where(valid, labels, info.max), torch.where(valid, labels, info.min)


def mixed(low: Tensor, high: Tensor, dims: int, radius: int = 1) -> Tensor:
    """Return whether patches hold more than one class, from padded :func:`bounds`; smaller by the padding."""
    least, most = running(torch.minimum, low, dims, radius), running(torch.maximum, high, dims, radius)
    return (most - least).bool() if high is low else least < most  # the faster one, where nothing is ignored
