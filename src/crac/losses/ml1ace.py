"""``ml1ace``: cross-entropy plus the marginal L1 average calibration error."""

import torch
from torch import Tensor

from crac.errors import check_number
from crac.functional.patches import one_hot
from crac.losses.base import ClassWeights, SegmentationLoss

COPIES = 64
"""Every bin is kept this many times, so that neighbouring pixels of a GPU do not wait to add to the same one."""


class ML1ACELoss(SegmentationLoss):
    """Cross-entropy, plus ``alpha`` times the calibration error of the batch itself (Barfoot et al., MICCAI 2024).

    The probabilities of each image and class fall into bins of equal width. A bin's error is the difference between
    its mean probability and the share of its pixels that belong to the class; the error is the mean over the bins
    that hold a pixel, then over classes and images. Which bin a pixel falls into carries no gradient (hard binning).

    Args:
        alpha: Weight of the calibration error.
        bins: Number of bins.
        num_classes, ignore_index, class_weights, dice_weight: As for :class:`~crac.losses.base.SegmentationLoss`.
    """

    def __init__(
        self,
        num_classes: int,
        alpha: float = 1.0,
        bins: int = 20,
        *,
        ignore_index: int | None = None,
        class_weights: ClassWeights = None,
        dice_weight: float = 0.0,
    ) -> None:
        super().__init__(num_classes, ignore_index=ignore_index, class_weights=class_weights, dice_weight=dice_weight)
        check_number("alpha", alpha, least=0)
        check_number("bins", bins, least=1, whole=True)
        self.alpha, self.bins = alpha, bins

    def penalty_term(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the weighted calibration error."""
        return self.alpha * self.error(logits.softmax(1), labels).mean()

    def error(self, probabilities: Tensor, labels: Tensor) -> Tensor:
        """Return the error of each image and class, ``(B, K)``, of probabilities ``(B, K, *S)`` and their labels."""
        flat = probabilities.flatten(2)
        excess = flat - one_hot(labels, self.num_classes, self.ignore_index).flatten(2).to(flat.dtype)
        count = torch.ones_like(flat)
        valid = self.valid(labels)
        if valid is not None:
            keep = valid.flatten(1).unsqueeze(1)
            excess, count = torch.where(keep, excess, 0), count * keep
        place = (flat.detach() * self.bins).ceil().long().clamp(1, self.bins) - 1
        place += torch.arange(flat.shape[2], device=flat.device) % COPIES * self.bins
        empty = flat.new_zeros(*flat.shape[:2], COPIES * self.bins)
        pixels, excess = (
            empty.scatter_add(2, place, values).view(*flat.shape[:2], COPIES, self.bins).sum(2)
            for values in (count, excess)
        )
        gaps = excess.abs() / pixels.clamp(min=1)
        return gaps.sum(2) / (pixels > 0).sum(2).clamp(min=1)
