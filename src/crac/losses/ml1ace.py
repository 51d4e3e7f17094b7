"""``ml1ace``: cross-entropy plus the marginal L1 average calibration error."""

import torch
from torch import Tensor

from crac.errors import check_number
from crac.functional.patches import one_hot
from crac.losses.base import ClassWeights, SegmentationLoss

COPIES = 64
"""Every bin is kept this many times, so that neighbouring pixels of a GPU do not wait to add to the same one."""


class ML1ACELoss(SegmentationLoss):
    """Cross-entropy, plus ``alpha`` times the calibration error of the batch itself (Barfoot et al., 2024 and 2025).

    The probabilities of each image and class fall into bins of equal width. A bin's error is the difference between
    its mean probability and the share of its pixels that belong to the class; the error is the mean over the bins
    that hold a pixel, then over classes and images. Which bin a pixel falls into carries no gradient (hard binning);
    with soft binning a pixel counts in the two bins whose centres are nearest, the more the nearer, and that does.

    Args:
        alpha: Weight of the calibration error.
        bins: Number of bins.
        soft: Whether the bins are soft; one with less than a hundredth of a pixel then counts as empty.
        num_classes, ignore_index, class_weights, dice_weight: As for :class:`~crac.losses.base.SegmentationLoss`.
    """

    def __init__(
        self,
        num_classes: int,
        alpha: float = 1.0,
        bins: int = 20,
        soft: bool = False,
        *,
        ignore_index: int | None = None,
        class_weights: ClassWeights = None,
        dice_weight: float = 0.0,
    ) -> None:
        super().__init__(num_classes, ignore_index=ignore_index, class_weights=class_weights, dice_weight=dice_weight)
        check_number("alpha", alpha, least=0)
        check_number("bins", bins, least=1, whole=True)
        self.alpha, self.bins, self.soft = alpha, bins, bool(soft)

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
        if not self.soft:
            place = (flat.detach() * self.bins).ceil().long().clamp(1, self.bins) - 1
            pixels, excess = self._binned(place, count), self._binned(place, excess)
            least = 1.0
        else:
            position = (flat * self.bins - 0.5).clamp(0, self.bins - 1)
            place = position.detach().floor().long().clamp(0, self.bins - 1)  # that of NaN lies anywhere
            share = (position - place) * count
            above = (place + 1).clamp(max=self.bins - 1)
            pixels = self._binned(place, count - share) + self._binned(above, share)
            excess = self._binned(place, (1 - position + place) * excess) + self._binned(above, share * excess)
            least = 0.01
        filled = pixels >= least
        gaps = torch.where(filled, excess.abs() / pixels.clamp(min=least), 0)
        return gaps.sum(2) / filled.sum(2).clamp(min=1)

    def _binned(self, place: Tensor, values: Tensor) -> Tensor:
        """Return the sums ``(B, K, bins)`` of values ``(B, K, N)`` by their bin."""
        copy = torch.arange(values.shape[2], device=values.device) % COPIES
        empty = values.new_zeros(*values.shape[:2], COPIES * self.bins)
        sums = empty.scatter_add(2, place + copy * self.bins, values)
        return sums.view(*values.shape[:2], COPIES, self.bins).sum(2)
