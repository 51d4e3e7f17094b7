"""``fl``: focal loss."""

import torch
from torch import Tensor

from crac.errors import check_number
from crac.losses.base import ClassWeights, SegmentationLoss, masked_mean


class FLLoss(SegmentationLoss):
    """Mean of ``-(1 - s_y)^gamma log s_y``: easy pixels weigh little (Lin et al., ICCV 2017).

    Args:
        gamma: Focusing exponent, at least 0; 0 is the cross-entropy.
        class_weights: ``K`` weights that multiply the pixels' terms.
        num_classes, ignore_index, dice_weight: As for :class:`~crac.losses.base.SegmentationLoss`.
    """

    def __init__(
        self,
        num_classes: int,
        gamma: float = 3.0,
        *,
        ignore_index: int | None = None,
        class_weights: ClassWeights = None,
        dice_weight: float = 0.0,
    ) -> None:
        super().__init__(num_classes, ignore_index=ignore_index, class_weights=class_weights, dice_weight=dice_weight)
        self.gamma = check_number("gamma", gamma, least=0)

    def fit_term(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the focal loss."""
        valid = self.valid(labels)
        index = labels if valid is None else labels.where(valid, 0)
        log_probability = logits.log_softmax(1).gather(1, index.unsqueeze(1)).squeeze(1)
        # 1 - s from expm1 stays exact where s is nearly 1; where it is 1, a power below 1 of 0 has no slope.
        missing = (-log_probability.expm1()).clamp(min=torch.finfo(logits.dtype).tiny)
        focal = -(missing**self.gamma) * log_probability
        if self.class_weights is not None:
            focal = focal * self.class_weights[index]
        return masked_mean(focal, valid)
