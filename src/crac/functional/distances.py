"""Exact Euclidean distances, batched and on any device, as far as a limit."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from crac.functional.patches import in_strips


def squared_distance(mask: Tensor, dims: int, limit: int) -> Tensor:
    """Return the squared distance from each pixel of a boolean mask to the nearest pixel outside it, 0 outside.

    The last ``dims`` dimensions are spatial, and their edge is no boundary. Exact up to ``limit`` pixels, and
    ``(limit + 1)^2`` beyond. One axis at a time: ``f(x) <- min over |d| <= limit of f(x + d) + d^2``.
    """
    far = (limit + 1) ** 2
    out = torch.where(mask, far, 0).to(torch.int32)
    for dim in range(-dims, 0):
        _lower_envelope(out, dim, [shift**2 for shift in range(1, limit + 1)], far)
    return out


def within(mask: Tensor, dims: int, distance: float, spacing: Sequence[float] | None = None) -> Tensor:
    """Return the pixels whose Euclidean distance to the nearest pixel of a mask is at most ``distance``.

    Args:
        mask: Boolean, any leading dimensions, then ``dims`` spatial ones.
        dims: Number of spatial dimensions.
        distance: In the unit of ``spacing``.
        spacing: Distance between pixels along each axis, 1 by default.

    Returns:
        Boolean of the same shape; all ``False`` where the mask is empty.
    """
    sides = (1.0,) * dims if spacing is None else tuple(spacing)
    margin = [int(distance / side) + 1 for side in sides]

    def near(part: Tensor) -> Tensor:
        """Look only at the part of a strip that holds the mask and what is near it."""
        box = _box(part, dims, margin)
        out = torch.zeros_like(part)
        if box is not None:
            out[box] = _within(part[box], dims, distance, sides)
        return out

    if mask.device.type != "cpu" or not mask.numel():
        return _within(mask, dims, distance, sides)
    return in_strips(near, mask, margin[-2])


def _within(mask: Tensor, dims: int, distance: float, sides: Sequence[float]) -> Tensor:
    limit = distance**2 * (1 + 1e-6)  # a pixel exactly at the distance belongs to it whatever rounding does
    # Squared distances between pixels of side 1 are whole numbers; most often a byte holds them.
    whole = all(side == 1 for side in sides) and 2 * limit < 255
    far = int(limit) + 1 if whole else torch.inf
    out = (~mask).view(torch.uint8) * far if whole else torch.where(mask, 0.0, far)
    for dim, side in zip(range(-dims, 0), sides, strict=True):
        reach = int(distance / side * (1 + 1e-6))
        costs = [shift**2 if whole else (shift * side) ** 2 for shift in range(1, reach + 1)]
        _lower_envelope(out, dim, costs, far)
    return (far - out).bool() if whole else out <= limit  # many times as fast as a comparison of bytes


def _box(mask: Tensor, dims: int, margin: Sequence[int]) -> tuple[slice, ...] | None:
    """The part of the image that holds the mask and a margin around it; ``None`` for an empty mask."""
    box = [slice(None)] * mask.ndim
    for dim, extra in zip(range(-dims, 0), margin, strict=True):
        other = [axis for axis in range(mask.ndim) if axis != mask.ndim + dim]
        found = mask.view(torch.uint8).amax(other).nonzero()  # of bytes, which is many times as fast
        if not len(found):
            return None
        box[dim] = slice(max(int(found[0]) - extra, 0), int(found[-1]) + extra + 1)
    return tuple(box)


def _lower_envelope(out: Tensor, dim: int, costs: Sequence[float], far: float) -> None:
    """Replace every value along an axis by the least of its neighbours' plus the cost of the way to them."""
    size = out.shape[dim]
    reach = min(len(costs), size - 1)
    padded = F.pad(out, [0, 0] * (-1 - dim) + [reach, reach], value=far)
    for shift in range(1, reach + 1):
        nearer = torch.minimum(padded.narrow(dim, reach - shift, size), padded.narrow(dim, reach + shift, size))
        torch.minimum(out, nearer.add_(costs[shift - 1]), out=out)


def boundary_weights(masks: Tensor, dims: int, reach: int = 10, largest: float = 1.0, smallest: float = 0.01) -> Tensor:
    """Return weights that are large at the boundary of a mask and fall off linearly with the distance to it.

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
