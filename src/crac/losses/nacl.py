"""``nacl``: neighbour-aware calibration."""

from torch import Tensor

from crac import kernels
from crac.errors import check_number
from crac.functional.patches import Border, check_border, patch_radius
from crac.functional.priors import neighbourhood_proportions
from crac.losses.base import ClassWeights, SegmentationLoss, masked_mean


class NACLLoss(SegmentationLoss):
    """Cross-entropy plus ``alpha`` times the distance of the logits to the neighbouring labels' shares.

    CRaC with one fixed weight for every class and region (Murugesan et al., MedIA 2025).

    Args:
        alpha: Weight of the penalty.
        border: What lies outside the image: ``"replicate"`` or ``"background"`` (as released).
        kernel_size: Side of the patch, odd.
        num_classes, ignore_index, class_weights, dice_weight: As for :class:`~crac.losses.base.SegmentationLoss`.
    """

    def __init__(
        self,
        num_classes: int,
        alpha: float = 0.1,
        border: Border = "replicate",
        kernel_size: int = 3,
        *,
        ignore_index: int | None = None,
        class_weights: ClassWeights = None,
        dice_weight: float = 0.0,
    ) -> None:
        super().__init__(num_classes, ignore_index=ignore_index, class_weights=class_weights, dice_weight=dice_weight)
        self.alpha = check_number("alpha", alpha)
        self.border = check_border(border)
        self.kernel_size = kernel_size
        self.radius = patch_radius(kernel_size)

    def setting(self, logits: Tensor, labels: Tensor, fit: bool = True, penalty: bool = True) -> kernels.Setting | None:
        """Describe cross-entropy, distance or both to the kernel."""
        if not kernels.usable(logits, labels, self.radius, self.ignore_index):
            return None
        return kernels.Setting(
            fit=fit,
            class_weights=self.class_weights,
            penalty="distance" if penalty else "none",
            weight=self.alpha,
            radius=self.radius,
            replicate=self.border == "replicate",
            ignore_index=self.ignore_index,
        )

    def penalty_term(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the weighted mean distance to the neighbours' shares."""
        prior = neighbourhood_proportions(labels, self.num_classes, self.border, self.kernel_size, self.ignore_index)
        return self.alpha * masked_mean((prior - logits).abs(), self.valid(labels))
