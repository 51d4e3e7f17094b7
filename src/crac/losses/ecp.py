"""``ecp``: explicit confidence penalty."""

from torch import Tensor

from crac.errors import check_number
from crac.losses.base import ClassWeights, SegmentationLoss, masked_mean


class ECPLoss(SegmentationLoss):
    """Cross-entropy minus ``alpha`` times the mean of ``-s log s`` (Pereyra et al., ICLR workshop 2017).

    Args:
        alpha: Weight of the entropy, averaged over pixels and classes.
        num_classes, ignore_index, class_weights, dice_weight: As for :class:`~crac.losses.base.SegmentationLoss`.
    """

    def __init__(
        self,
        num_classes: int,
        alpha: float = 0.1,
        *,
        ignore_index: int | None = None,
        class_weights: ClassWeights = None,
        dice_weight: float = 0.0,
    ) -> None:
        super().__init__(num_classes, ignore_index=ignore_index, class_weights=class_weights, dice_weight=dice_weight)
        self.alpha = check_number("alpha", alpha)

    def penalty_term(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the weighted negative entropy."""
        log_probability = logits.log_softmax(1)
        return self.alpha * masked_mean(log_probability.exp() * log_probability, self.valid(labels))
