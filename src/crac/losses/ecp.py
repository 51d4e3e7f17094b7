"""``ecp``: explicit confidence penalty."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from crac.losses.base import SegmentationLoss, masked_mean

__all__ = ["ECPLoss"]


class ECPLoss(SegmentationLoss):
    """Cross-entropy minus ``alpha`` times the mean of ``-s log s`` (Pereyra et al., ICLR workshop 2017).

    Args:
        num_classes: ``K``, the background included.
        alpha: Weight of the entropy, averaged over pixels and classes.
        **options: As for :class:`~crac.losses.base.SegmentationLoss`.
    """

    def __init__(self, num_classes: int, alpha: float = 0.1, **options: Any) -> None:
        super().__init__(num_classes, **options)
        self.alpha = alpha

    def penalty(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The negative entropy, weighted."""
        log_probability = logits.log_softmax(1)
        return self.alpha * masked_mean(log_probability.exp() * log_probability, self.valid(labels))
