"""``ml1ace``: cross-entropy plus the marginal L1 average calibration error."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from crac.errors import InputError
from crac.functional.patches import one_hot
from crac.losses.base import SegmentationLoss

__all__ = ["ML1ACELoss"]

COPIES = 64
"""Of each bin, for neighbouring pixels to add to."""


class ML1ACELoss(SegmentationLoss):
    """Cross-entropy, plus ``alpha`` times the calibration error of the batch itself (Barfoot et al., MICCAI 2024).

    The probabilities of each image and class fall into bins of equal width. A bin's error is the difference between
    its mean probability and the share of its pixels that belong to the class; the error is the mean over the bins
    that hold a pixel, then over classes and images. Which bin a pixel falls into carries no gradient (hard binning).

    Args:
        num_classes: ``K``, the background included.
        alpha: Weight of the calibration error.
        bins: Number of bins.
        **options: As for :class:`~crac.losses.base.SegmentationLoss`.
    """

    def __init__(self, num_classes: int, alpha: float = 1.0, bins: int = 20, **options: Any) -> None:
        super().__init__(num_classes, **options)
        if alpha < 0:
            raise InputError(f"alpha must not be negative; got {alpha!r}")
        if bins < 1:
            raise InputError(f"bins must be a whole number of at least 1; got {bins!r}")
        self.alpha = alpha
        self.bins = bins

    def penalty(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The weighted calibration error."""
        return self.alpha * self.error(logits.softmax(1), labels).mean()

    def error(self, probabilities: Tensor, labels: Tensor) -> Tensor:
        """Average calibration error of each image and class, ``(B, K)``.

        Args:
            probabilities: ``(B, K, *S)``.
            labels: ``(B, *S)``.
        """
        flat = probabilities.flatten(2)
        excess = flat - one_hot(labels, self.num_classes, self.ignore_index).flatten(2).to(flat.dtype)
        count = torch.ones_like(flat)
        valid = self.valid(labels)
        if valid is not None:
            keep = valid.flatten(1).unsqueeze(1)
            excess, count = torch.where(keep, excess, 0), count * keep
        place = (flat.detach() * self.bins).ceil().long().clamp(1, self.bins) - 1
        # On a GPU they would queue for the same one.
        place += torch.arange(flat.shape[2], device=flat.device) % COPIES * self.bins
        empty = flat.new_zeros(*flat.shape[:2], COPIES * self.bins)
        pixels, excess = (
            empty.scatter_add(2, place, values).view(*flat.shape[:2], COPIES, self.bins).sum(2)
            for values in (count, excess)
        )
        gaps = excess.abs() / pixels.clamp(min=1)
        return gaps.sum(2) / (pixels > 0).sum(2).clamp(min=1)
