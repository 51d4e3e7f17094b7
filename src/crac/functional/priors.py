"""What the neighbouring labels say about a pixel."""

import operator

import torch
from torch import Tensor

from crac.functional.patches import Border, check_labels, one_hot, pad, patch_radius, running


def neighbourhood_proportions(
    labels: Tensor,
    num_classes: int,
    border: Border = "replicate",
    kernel_size: int = 3,
    ignore_index: int | None = None,
) -> Tensor:
    """Return the share of each class among the labels of the patch around each pixel.

    The shares sum to 1 everywhere; only where a patch holds nothing but ignored pixels are they all 0.

    Args:
        labels: Integers, ``(B, *S)`` with 2 or 3 spatial dimensions.
        num_classes: ``K``.
        border: What lies outside the image: ``"replicate"`` (the edge goes on) or ``"background"`` (class 0).
        kernel_size: Side of the patch, odd.
        ignore_index: Label of pixels that count as no class at all.

    Returns:
        ``(B, K, *S)`` in ``float32``.

    Example:
        >>> labels = torch.tensor([[[0, 0, 1], [0, 0, 1], [0, 0, 1]]])
        >>> neighbourhood_proportions(labels, num_classes=2)[0, 1, 1]
        tensor([0.0000, 0.3333, 0.6667])
    """
    counts, known = neighbourhood_counts(labels, num_classes, border, kernel_size, ignore_index)
    return counts.float().mul_(1 / known) if isinstance(known, int) else counts / known.unsqueeze(1)


def soft_targets(
    labels: Tensor,
    region: Tensor,
    num_classes: int,
    border: Border = "replicate",
    kernel_size: int = 3,
    smoothing: float = 0.0,
    ignore_index: int | None = None,
) -> Tensor:
    """Return a distribution over the classes for each pixel, softer on boundaries than inside.

    Args:
        labels: Integers, ``(B, *S)`` with 2 or 3 spatial dimensions.
        region: Region of each pixel, ``(B, *S)``: 0 inside.
        num_classes: ``K``.
        border: What lies outside the image: ``"replicate"`` or ``"background"``.
        kernel_size: Side of the patch, odd.
        smoothing: Probability that is spread over all classes inside.
        ignore_index: Label of pixels that count as no class at all.

    Returns:
        ``(B, K, *S)`` in ``float32``: in region 0 the pixel's own label, smoothed; elsewhere the shares of
        :func:`neighbourhood_proportions`.
    """
    shares = neighbourhood_proportions(labels, num_classes, border, kernel_size, ignore_index)
    own = one_hot(check_labels(labels, num_classes - 1)[0], num_classes, ignore_index).to(shares.dtype)
    inside = torch.add(smoothing / num_classes, own, alpha=1 - smoothing)
    return torch.where((region == 0).unsqueeze(1), inside, shares)


def neighbourhood_counts(
    labels: Tensor, num_classes: int, border: Border, kernel_size: int, ignore_index: int | None
) -> tuple[Tensor, Tensor | int]:
    """Return how often each class occurs in each patch ``(B, K, *S)``, and a divisor that makes shares of it.

    The divisor is the size of the patch, or, with ``ignore_index``, ``(B, *S)``: its labels that are not ignored, at
    least 1.
    """
    labels, dims = check_labels(labels, num_classes - 1, ignore_index)
    radius = patch_radius(kernel_size)
    size = kernel_size**dims
    # Counting in bytes moves a quarter of the memory that floats would.
    dtype = torch.uint8 if size < 256 else torch.int32
    padded = pad(labels, dims, radius, border)
    counts = running(operator.add, one_hot(padded, num_classes, ignore_index).to(dtype), dims, radius)
    if ignore_index is None:
        return counts, size
    known = running(operator.add, (padded != ignore_index).to(dtype), dims, radius)
    return counts, known.clamp_(min=1)
