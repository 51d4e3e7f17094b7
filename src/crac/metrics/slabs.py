"""A batch in pieces that a cache can hold, with the regions of their voxels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from crac.functional.patches import pad
from crac.functional.regions import bounds, mixed

# Voxels; more would leave the cache, fewer would be mostly the planes that neighbouring slabs share.
CPU_SLAB = 2**20


class Voxels(NamedTuple):
    """Voxels in a row: scores ``(K, V)``, labels, regions and whether they count, ``(V,)`` each."""

    scores: Tensor
    labels: Tensor
    region: Tensor
    keep: Tensor | None

    def parts(self, step: int) -> Iterator[Voxels]:
        """Yield the voxels, at most ``step`` at a time."""
        for start in range(0, len(self.labels), step):
            chosen = slice(start, start + step)
            keep = None if self.keep is None else self.keep[chosen]
            yield Voxels(self.scores[:, chosen], self.labels[chosen], self.region[chosen], keep)


class Slab(NamedTuple):
    """Planes ``start`` to ``stop`` of some images of a batch; regions are only found when they are needed."""

    scores: Tensor
    labels: Tensor
    keep: Tensor | None
    start: int
    stop: int
    ignore_index: int | None

    def voxels(self, compress: bool) -> Voxels:
        """Its voxels with their regions.

        Args:
            compress: Return only those that count. It is cheaper than carrying the others along, but on a GPU it would
                have to wait for their number.
        """
        region = self._region()
        planes = slice(self.start, self.stop)
        scores = self.scores[:, :, planes].transpose(0, 1).reshape(self.scores.shape[1], -1)
        labels = self.labels[:, planes].reshape(-1)
        if self.keep is None:
            return Voxels(scores, labels, region, None)
        keep = self.keep[:, planes].reshape(-1)
        if not compress:
            return Voxels(scores, labels, region, keep)
        kept = keep.nonzero().squeeze(1)
        return Voxels(scores.index_select(1, kept), labels[kept], region[kept], None)

    def _region(self) -> Tensor:
        """1 on boundaries, ``(V,)`` in ``uint8``."""
        depth = self.labels.shape[1]
        labels = self.labels[:, max(self.start - 1, 0) : self.stop + 1]
        if self.ignore_index is None and self.scores.shape[1] <= 256:
            labels = labels.to(torch.uint8)  # finding regions is bound by memory
        # The neighbouring planes are the padding of the first dimension; at the ends the outermost ones go on.
        ends = [labels[:, :1]] * (self.start == 0), [labels[:, -1:]] * (self.stop == depth)
        if ends[0] or ends[1]:
            labels = torch.cat([*ends[0], labels, *ends[1]], 1)
        dims = labels.ndim - 1
        low, high = bounds(pad(labels, dims - 1, 1, "replicate"), self.ignore_index)
        found = mixed(low, high, dims)
        if self.ignore_index is not None:
            found &= self.labels[:, self.start : self.stop] != self.ignore_index
        return found.view(torch.uint8).reshape(-1)

    @property
    def size(self) -> int:
        """How many voxels it holds."""
        return (self.stop - self.start) * self.labels[:, 0].numel()


def cut(scores: Tensor, labels: Tensor, keep: Tensor | None, ignore_index: int | None = None) -> list[Slab]:
    """Divide a batch for :func:`crac.metrics.counts.count_voxels`.

    On a GPU it stays whole, for every launch costs; on a CPU slabs small enough for its cache are taken.

    Args:
        scores: ``(B, K, *S)`` logits or probabilities, floating point.
        labels: ``(B, *S)`` integers.
        keep: ``(B, *S)`` boolean, or None for all.
        ignore_index: Label that is no class when regions are found.
    """
    depth = labels.shape[1]
    if scores.device.type != "cpu":
        return [Slab(scores, labels, keep, 0, depth, ignore_index)]
    planes = max(1, CPU_SLAB * depth // max(1, labels[0].numel()))
    return [
        Slab(
            scores[one],
            labels[one],
            None if keep is None else keep[one],
            first,
            min(first + planes, depth),
            ignore_index,
        )
        for one in (slice(item, item + 1) for item in range(len(labels)))
        for first in range(0, depth, planes)
    ]
