"""Separable sliding windows over label maps: no ``unfold``, no copy per neighbour."""

from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import Tensor

from crac.errors import InputError, one_of
from crac.functional.arrays import computable

Border = Literal["replicate", "background"]
BORDERS = ("replicate", "background")
STRIP = 64
"""Rows of a strip."""


def check_border(border: Border) -> Border:
    """Return the border, if it is one of the two."""
    if border not in BORDERS:
        raise one_of("border", border, BORDERS)
    return border


def check_integers(labels: Tensor) -> Tensor:
    """Return labels in a type to compute with; refuse what is no integer.

    A float map may hold 1.5, a boolean one has lost its classes.
    """
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise InputError(f"labels must hold integers; got dtype {labels.dtype}")
    return computable(labels)


def check_labels(labels: Tensor, *numbers: int | None) -> tuple[Tensor, int]:
    """Return an integer label map ``(B, *S)``, in a type to compute with, and the number of its spatial dimensions.

    The type also holds the ``numbers`` that labels are compared with: to a byte, -1 would be 255 and 256 be 0.
    """
    labels = check_integers(labels)
    if labels.ndim not in (3, 4):
        raise InputError(f"labels must have shape (B, H, W) or (B, D, H, W); got {tuple(labels.shape)}")
    held = torch.iinfo(labels.dtype)
    if any(number is not None and not held.min <= number <= held.max for number in numbers):
        labels = labels.long()
    return labels, labels.ndim - 1


def patch_radius(kernel_size: int, least: int = 1) -> int:
    """Return the patch radius of an odd kernel size of at least ``least``."""
    if not isinstance(kernel_size, int) or kernel_size < least or kernel_size % 2 == 0:
        raise InputError(f"kernel_size must be an odd number of at least {least}; got {kernel_size!r}")
    return kernel_size // 2


def pad(labels: Tensor, dims: int, radius: int, border: Border) -> Tensor:
    """Extend a label map by ``radius`` on both sides of its last ``dims`` dimensions."""
    if check_border(border) == "background":
        return torch.nn.functional.pad(labels, (radius, radius) * dims)
    for dim in range(-dims, 0):
        first, last = labels.narrow(dim, 0, 1), labels.narrow(dim, labels.shape[dim] - 1, 1)
        labels = torch.cat([*[first] * radius, labels, *[last] * radius], dim)
    return labels


def running(combine: Callable[[Tensor, Tensor], Tensor], padded: Tensor, dims: int, radius: int) -> Tensor:
    """Reduce every patch of side ``2 radius + 1`` with an associative ``combine``, one axis at a time."""
    for dim in range(-dims, 0):
        size = padded.shape[dim] - 2 * radius
        out = padded.narrow(dim, 0, size)
        for offset in range(1, 2 * radius + 1):
            out = combine(out, padded.narrow(dim, offset, size))
        padded = out
    return padded


def in_strips(do: Callable[[Tensor], Tensor], image: Tensor, reach: int) -> Tensor:
    """Return ``do(image)``, found on a CPU for some rows at a time, so that a cache holds them.

    Args:
        do: Finds for every pixel of an image ``(..., H, W)`` a value that depends on pixels within ``reach`` of it.
        image: The image.
        reach: How far such pixels lie along ``H``.
    """
    rows = image.shape[-2]
    if image.device.type != "cpu" or rows <= STRIP:
        return do(image)
    parts = []
    for first in range(0, rows, STRIP):
        start = max(first - reach, 0)
        found = do(image[..., start : first + STRIP + reach, :].contiguous())
        parts.append(found[..., first - start : first - start + STRIP, :])
    return torch.cat(parts, -2)


def weighted_patches(values: Tensor, dims: int, weights: Sequence[float]) -> Tensor:
    """Correlate the last ``dims`` dimensions of a padded tensor with the outer product of ``weights``."""
    for dim in range(-dims, 0):
        size = values.shape[dim] - len(weights) + 1
        values = sum(weight * values.narrow(dim, offset, size) for offset, weight in enumerate(weights))  # type: ignore[assignment]
    return values


def narrow(labels: Tensor, num_classes: int, ignore_index: int | None) -> tuple[Tensor, int | None]:
    """Return labels that are classes or ignored, and the ignored label, in a byte if that holds them."""
    if num_classes > 255 or (ignore_index is not None and 0 <= ignore_index < num_classes):
        return labels, ignore_index
    if ignore_index is None:
        return labels.to(torch.uint8), None
    return torch.where(labels == ignore_index, 255, labels).to(torch.uint8), 255


def one_hot(labels: Tensor, num_classes: int, ignore_index: int | None = None) -> Tensor:
    """Return a boolean ``(B, K, *S)`` of labels ``(B, *S)``; ignored pixels, and other labels, belong to no class."""
    classes = torch.arange(num_classes, device=labels.device, dtype=labels.dtype)
    out = labels.unsqueeze(1) == classes.view(1, -1, *[1] * (labels.ndim - 1))
    if ignore_index is not None and 0 <= ignore_index < num_classes:
        out[:, ignore_index] = False
    return out
