"""``svls``: spatially varying label smoothing."""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor

from crac import kernels
from crac.errors import InputError
from crac.functional.patches import one_hot, pad, patch_radius, weighted_patches
from crac.losses.base import SegmentationLoss, masked_mean

__all__ = ["SVLSLoss"]


class SVLSLoss(SegmentationLoss):
    """Cross-entropy with labels blurred over their neighbours (Islam and Glocker, IPMI 2021).

    The kernel is a Gaussian whose centre is replaced by the sum of its neighbours, so that the pixel's own label
    keeps half of the weight.

    Args:
        num_classes: ``K``, the background included.
        sigma: Width of the Gaussian in pixels: 2 in the paper's tables, 1 in its authors' code.
        kernel_size: Side of the kernel, odd and at least 3.
        **options: As for :class:`~crac.losses.base.SegmentationLoss`; class weights multiply the classes' terms.
    """

    def __init__(self, num_classes: int, sigma: float = 2.0, kernel_size: int = 3, **options: Any) -> None:
        super().__init__(num_classes, **options)
        if sigma <= 0:
            raise InputError(f"sigma must be positive; got {sigma!r}")
        if kernel_size < 3:
            raise InputError(f"kernel_size must be an odd number of at least 3; got {kernel_size!r}")
        self.sigma = sigma
        self.radius = patch_radius(kernel_size)

    def setting(self, logits: Tensor, labels: Tensor) -> kernels.Setting | None:
        """Everything, with a kernel of side 3."""
        if self.radius != 1 or not kernels.usable(logits, labels, 1, self.ignore_index):
            return None
        step = math.exp(-1 / (2 * self.sigma**2))
        neighbours = (1 + 2 * step) ** (labels.ndim - 1) - 1
        rings = [0.5, *(step**distance / (2 * neighbours) for distance in (1, 2, 3))]
        return kernels.Setting(class_weights=self.class_weights, rings=rings, ignore_index=self.ignore_index)

    def targets(self, labels: Tensor) -> Tensor:
        """Smoothed one-hot labels, ``(B, K, *S)``, summing to 1 (to 0 where every pixel of the patch is ignored)."""
        dims = labels.ndim - 1
        profile = [math.exp(-((x / self.sigma) ** 2) / 2) for x in range(-self.radius, self.radius + 1)]
        neighbours = sum(profile) ** dims - 1  # the Gaussian is 1 at its centre
        padded = pad(labels, dims, self.radius, "replicate")
        hard = one_hot(labels, self.num_classes, self.ignore_index)
        blurred = weighted_patches(one_hot(padded, self.num_classes, self.ignore_index).float(), dims, profile)
        # The kernel is blur + (neighbours - 1) at the centre; its total is twice the neighbours' sum.
        smooth = (blurred + (neighbours - 1) * hard) / (2 * neighbours)
        if self.ignore_index is None:
            return smooth
        return smooth / smooth.sum(1, keepdim=True).clamp(min=1e-6)

    def fit(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Cross-entropy with the smoothed labels."""
        terms = self.targets(labels) * logits.log_softmax(1)
        if self.class_weights is not None:
            terms = terms * self.class_weights.view(1, -1, *[1] * (logits.ndim - 2))
        return masked_mean(-terms.sum(1), self.valid(labels))
