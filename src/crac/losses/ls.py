"""``ls``: label smoothing."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from crac.errors import InputError
from crac.losses.base import SegmentationLoss, masked_mean

__all__ = ["LSLoss"]


class LSLoss(SegmentationLoss):
    """Cross-entropy with a share ``alpha`` of every label spread over all classes (Szegedy et al., CVPR 2016).

    Args:
        num_classes: ``K``, the background included.
        alpha: Share that is spread, between 0 and 1.
        **options: As for :class:`~crac.losses.base.SegmentationLoss`; class weights act on the unsmoothed part.
    """

    def __init__(self, num_classes: int, alpha: float = 0.1, **options: Any) -> None:
        super().__init__(num_classes, **options)
        if not 0 <= alpha <= 1:
            raise InputError(f"alpha must lie between 0 and 1; got {alpha!r}")
        self.alpha = alpha

    def fit(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Cross-entropy with smoothed labels."""
        spread = masked_mean(-logits.log_softmax(1), self.valid(labels))
        return (1 - self.alpha) * super().fit(logits, labels) + self.alpha * spread
