"""``mbls``: margin-based label smoothing."""

from torch import Tensor

from crac.errors import check_number
from crac.losses.base import ClassWeights, SegmentationLoss, masked_mean


class MbLSLoss(SegmentationLoss):
    """Cross-entropy plus a penalty on logits further than a margin below the largest (Liu et al., CVPR 2022).

    Args:
        alpha: Weight of the penalty.
        margin: Distance between logits that costs nothing.
        num_classes, ignore_index, class_weights, dice_weight: As for :class:`~crac.losses.base.SegmentationLoss`.
    """

    def __init__(
        self,
        num_classes: int,
        alpha: float = 0.1,
        margin: float = 10.0,
        *,
        ignore_index: int | None = None,
        class_weights: ClassWeights = None,
        dice_weight: float = 0.0,
    ) -> None:
        super().__init__(num_classes, ignore_index=ignore_index, class_weights=class_weights, dice_weight=dice_weight)
        check_number("alpha", alpha)
        check_number("margin", margin)
        self.alpha, self.margin = alpha, margin

    def penalty_term(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the weighted mean of what exceeds the margin."""
        # max rather than amax: its gradient goes to one winner, as in the released code, also on ties.
        largest = logits.max(1, keepdim=True).values
        return self.alpha * masked_mean((largest - logits - self.margin).relu(), self.valid(labels))
