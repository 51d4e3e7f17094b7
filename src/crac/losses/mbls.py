"""``mbls``: margin-based label smoothing."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from crac.losses.base import SegmentationLoss, masked_mean

__all__ = ["MbLSLoss"]


class MbLSLoss(SegmentationLoss):
    """Cross-entropy plus a penalty on logits further than a margin below the largest (Liu et al., CVPR 2022).

    Args:
        num_classes: ``K``, the background included.
        alpha: Weight of the penalty.
        margin: Distance between logits that costs nothing.
        **options: As for :class:`~crac.losses.base.SegmentationLoss`.
    """

    def __init__(self, num_classes: int, alpha: float = 0.1, margin: float = 10.0, **options: Any) -> None:
        super().__init__(num_classes, **options)
        self.alpha = alpha
        self.margin = margin

    def penalty(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The weighted margin term."""
        # max rather than amax: its gradient goes to one winner, as in the released code, also on ties.
        largest = logits.max(1, keepdim=True).values
        return self.alpha * masked_mean((largest - logits - self.margin).relu(), self.valid(labels))
