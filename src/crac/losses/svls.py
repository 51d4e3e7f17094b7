"""``svls``: spatially varying label smoothing."""

import math

import torch
from torch import Tensor

from crac import kernels
from crac.errors import check_number
from crac.functional.patches import one_hot, pad, patch_radius, weighted_patches
from crac.losses.base import ClassWeights, SegmentationLoss, masked_mean


class SVLSLoss(SegmentationLoss):
    """Cross-entropy with labels blurred over their neighbours (Islam and Glocker, IPMI 2021).

    The kernel is a Gaussian whose centre is replaced by the sum of its neighbours, so that the pixel's own label
    keeps half of the weight.

    Args:
        sigma: Width of the Gaussian in pixels: 2 in the paper's tables, 1 in its authors' code. It is at least 0.3,
            where hardly more than the nearest neighbours count.
        kernel_size: Side of the kernel, odd and at least 3.
        class_weights: ``K`` weights that multiply the classes' terms.
        num_classes, ignore_index, dice_weight: As for :class:`~crac.losses.base.SegmentationLoss`.
    """

    def __init__(
        self,
        num_classes: int,
        sigma: float = 2.0,
        kernel_size: int = 3,
        *,
        ignore_index: int | None = None,
        class_weights: ClassWeights = None,
        dice_weight: float = 0.0,
    ) -> None:
        super().__init__(num_classes, ignore_index=ignore_index, class_weights=class_weights, dice_weight=dice_weight)
        self.sigma = check_number("sigma", sigma, least=0.3)
        self.radius = patch_radius(kernel_size, least=3)
        self.profile = tuple(math.exp(-((x / self.sigma) ** 2) / 2) for x in range(-self.radius, self.radius + 1))

    def setting(self, logits: Tensor, labels: Tensor, fit: bool = True, penalty: bool = True) -> kernels.Setting | None:
        """Describe the cross-entropy with smoothed labels to the kernel, which knows patches of side 3."""
        if not fit or self.radius != 1 or not kernels.usable(logits, labels, 1, self.ignore_index):
            return None
        step = math.exp(-1 / (2 * self.sigma**2))
        neighbours = (1 + 2 * step) ** (labels.ndim - 1) - 1
        rings = [0.5, *(step**distance / (2 * neighbours) for distance in (1, 2, 3))]
        return kernels.Setting(class_weights=self.class_weights, rings=rings, ignore_index=self.ignore_index)

    def targets(self, labels: Tensor) -> Tensor:
        """Return smoothed one-hot labels ``(B, K, *S)``: they sum to 1, to 0 where the whole patch is ignored.

        Where a label is no class they are NaN.
        """
        dims = labels.ndim - 1
        neighbours = sum(self.profile) ** dims - 1  # the Gaussian is 1 at its centre
        padded = pad(labels, dims, self.radius, "replicate")
        hard = one_hot(labels, self.num_classes, self.ignore_index)
        blurred = weighted_patches(one_hot(padded, self.num_classes, self.ignore_index).float(), dims, self.profile)
        # The kernel is blur + (neighbours - 1) at the centre; its total is twice the neighbours' sum.
        smooth = (blurred + (neighbours - 1) * hard) / (2 * neighbours)
        known = hard.any(1, keepdim=True)
        if self.ignore_index is None:
            return torch.where(known, smooth, torch.nan)
        smooth = torch.where(known | (labels == self.ignore_index).unsqueeze(1), smooth, torch.nan)
        return smooth / smooth.sum(1, keepdim=True).clamp(min=1e-6)

    def fit_term(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the cross-entropy with the smoothed labels."""
        terms = self.targets(labels) * logits.log_softmax(1)
        if self.class_weights is not None:
            terms = terms * self.class_weights.view(1, -1, *[1] * (logits.ndim - 2))
        return masked_mean(-terms.sum(1), self.valid(labels))
