"""Exact Euclidean distances, batched and on any device, as far as a limit."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

__all__ = ["boundary_weights", "squared_distance"]


def squared_distance(mask: Tensor, dims: int, limit: int) -> Tensor:
    """Squared distance from each pixel of a mask to the nearest pixel outside it, 0 outside.

    Exact up to ``limit``, and ``(limit + 1)^2`` beyond. The image's edge is no boundary. One axis at a time:
    ``f(x) <- min over |d| <= limit of f(x + d) + d^2``.

    Args:
        mask: Boolean, any leading dimensions, then ``dims`` spatial ones.
        dims: Number of spatial dimensions.
        limit: Largest distance of interest, in pixels.
    """
    far = (limit + 1) ** 2
    out = torch.where(mask, far, 0).to(torch.int32)
    for dim in range(-dims, 0):
        size = out.shape[dim]
        reach = min(limit, size - 1)
        padded = F.pad(out, [0, 0] * (-1 - dim) + [reach, reach], value=far)
        for shift in range(1, reach + 1):
            nearer = torch.minimum(padded.narrow(dim, reach - shift, size), padded.narrow(dim, reach + shift, size))
            torch.minimum(out, nearer.add_(shift**2), out=out)
    return out


def boundary_weights(masks: Tensor, dims: int, reach: int = 10, largest: float = 1.0, smallest: float = 0.01) -> Tensor:
    """Weights that are large at the boundary of a mask and fall off linearly with the distance to it.

    The distance is counted in whole pixels: ``floor`` of it minus 1 inside, ``ceil`` of it outside. A mask that is
    nowhere two pixels deep counts as having no boundary.

    Args:
        masks: Boolean, any leading dimensions, then ``dims`` spatial ones.
        dims: Number of spatial dimensions.
        reach: Distance at which the weight has fallen to ``smallest``.
        largest: Weight added at the boundary.
        smallest: Weight everywhere.

    Returns:
        ``float32`` of the same shape.
    """
    inside, outside = squared_distance(torch.stack([masks, ~masks]), dims, reach + 1).double().sqrt()
    inside = inside.floor() - 1
    distance = torch.where(masks, inside, outside.ceil())
    deep = (masks & (inside >= 1)).flatten(-dims).any(-1).view(*masks.shape[:-dims], *[1] * dims)
    weight = largest * (reach - distance).clamp(min=0) / reach
    return (torch.where(deep, weight, 0) + smallest).float()
