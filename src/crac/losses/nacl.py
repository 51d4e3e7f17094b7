"""``nacl``: neighbour-aware calibration."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from crac import kernels
from crac.functional.patches import Border, check_border, patch_radius
from crac.functional.priors import neighbourhood_proportions
from crac.losses.base import SegmentationLoss, masked_mean

__all__ = ["NACLLoss"]


class NACLLoss(SegmentationLoss):
    """Cross-entropy plus ``alpha`` times the distance of the logits to the neighbouring labels' shares.

    CRaC with one fixed weight for every class and region (Murugesan et al., MedIA 2025).

    Args:
        num_classes: ``K``, the background included.
        alpha: Weight of the penalty.
        border: What lies outside the image: ``"replicate"`` or ``"background"`` (as released).
        kernel_size: Side of the patch, odd.
        **options: As for :class:`~crac.losses.base.SegmentationLoss`.
    """

    def __init__(
        self, num_classes: int, alpha: float = 0.1, border: Border = "replicate", kernel_size: int = 3, **options: Any
    ) -> None:
        super().__init__(num_classes, **options)
        self.alpha = alpha
        self.border = check_border(border)
        self.kernel_size = kernel_size

    def setting(self, logits: Tensor, labels: Tensor) -> kernels.Setting | None:
        """Everything."""
        radius = patch_radius(self.kernel_size)
        if not kernels.usable(logits, labels, radius, self.ignore_index):
            return None
        return kernels.Setting(
            class_weights=self.class_weights,
            penalty="distance",
            weight=self.alpha,
            radius=radius,
            replicate=self.border == "replicate",
            ignore_index=self.ignore_index,
        )

    def penalty(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The weighted distance to the prior."""
        prior = neighbourhood_proportions(labels, self.num_classes, self.border, self.kernel_size, self.ignore_index)
        return self.alpha * masked_mean((prior - logits).abs(), self.valid(labels))
