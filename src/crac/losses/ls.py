"""``ls``: label smoothing."""

from torch import Tensor

from crac.errors import check_number
from crac.losses.base import ClassWeights, SegmentationLoss, masked_mean


class LSLoss(SegmentationLoss):
    """Cross-entropy with a share ``alpha`` of every label spread over all classes (Szegedy et al., CVPR 2016).

    Args:
        alpha: Share that is spread, between 0 and 1.
        class_weights: ``K`` weights of the part that is not spread.
        num_classes, ignore_index, dice_weight: As for :class:`~crac.losses.base.SegmentationLoss`.
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
        self.alpha = check_number("alpha", alpha, least=0, most=1)

    def fit_term(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the cross-entropy with smoothed labels."""
        spread = masked_mean(-logits.log_softmax(1), self.valid(labels))
        return (1 - self.alpha) * super().fit_term(logits, labels) + self.alpha * spread
