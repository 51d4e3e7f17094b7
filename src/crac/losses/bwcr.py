"""``bwcr``: boundary-weighted logit consistency."""

import torch
from torch import Tensor

from crac.errors import InputError, check_number
from crac.functional.distances import boundary_weights
from crac.functional.patches import check_labels, one_hot
from crac.losses.base import ClassWeights, SegmentationLoss, check_batch, masked_mean, widen


class BWCRLoss(SegmentationLoss):
    """Cross-entropy, plus the squared difference of the logits of two views (Karani et al., MICCAI 2023).

    The difference weighs most at the boundaries of the foreground classes. Making the two augmented views and
    mapping their logits back to the same grid is the training loop's work; without a second view this is the
    cross-entropy.

    Args:
        reach: Distance from the boundary, in pixels, at which the weight has fallen to ``smallest``.
        largest: Weight added at the boundary.
        smallest: Weight everywhere.
        num_classes, ignore_index, class_weights, dice_weight: As for :class:`~crac.losses.base.SegmentationLoss`.
    """

    def __init__(
        self,
        num_classes: int,
        reach: int = 10,
        largest: float = 1.0,
        smallest: float = 0.01,
        *,
        ignore_index: int | None = None,
        class_weights: ClassWeights = None,
        dice_weight: float = 0.0,
    ) -> None:
        super().__init__(num_classes, ignore_index=ignore_index, class_weights=class_weights, dice_weight=dice_weight)
        check_number("reach", reach, least=1, whole=True)
        check_number("largest", largest)
        check_number("smallest", smallest)
        self.reach, self.largest, self.smallest = reach, largest, smallest

    def forward(
        self, logits: Tensor, labels: Tensor, other: Tensor | None = None, mask: Tensor | None = None
    ) -> Tensor:
        """Return the cross-entropy of the first view, plus the consistency with the second if there is one.

        Args:
            logits: ``(B, K, *S)`` of the first view.
            labels: ``(B, *S)`` or ``(B, 1, *S)``.
            other: Logits of the second view, pixel by pixel those of the first.
            mask: Boolean ``(B, *S)``, the pixels that both views show; all by default.
        """
        loss = super().forward(logits, labels)
        return loss if other is None else loss + self.consistency(logits, other, labels, mask)

    def weights(self, labels: Tensor) -> Tensor:
        """Return the weight of every pixel, ``(B, *S)``: the largest over the foreground classes."""
        labels, dims = check_labels(labels, self.num_classes - 1)
        masks = one_hot(labels, self.num_classes, self.ignore_index)[:, 1:]
        return boundary_weights(masks, dims, self.reach, self.largest, self.smallest).amax(1)

    def consistency(self, logits: Tensor, other: Tensor, labels: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the weighted mean squared difference of two aligned logit maps, over the pixels of ``mask``."""
        if other.shape != logits.shape:
            raise InputError(f"other must have the shape of logits, {tuple(logits.shape)}; got {tuple(other.shape)}")
        logits, labels = widen(logits, check_batch(logits, labels, self.num_classes, self.ignore_index))
        valid = self.valid(labels)
        if mask is not None:
            if mask.dtype != torch.bool or mask.shape != labels.shape:
                given = f"{mask.dtype} of {tuple(mask.shape)}"
                raise InputError(f"mask must be boolean of shape {tuple(labels.shape)}; got {given}")
            valid = mask if valid is None else mask & valid
        difference = (logits - other.to(logits.dtype)) ** 2
        return masked_mean(difference * self.weights(labels).unsqueeze(1), valid)
