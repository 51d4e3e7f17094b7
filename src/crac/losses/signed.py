"""What the preset ``signed`` is made of: a price that falls as well as grows, and the signal that drives it."""

from collections.abc import Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from crac.errors import check_number
from crac.functional.patches import Border
from crac.functional.regions import region_map
from crac.losses.multipliers import Multipliers

Signal = Literal["predicted", "all"]
SIGNALS = ("predicted", "all")


class SignedMultipliers(Multipliers):
    """Prices of a constraint, ``lambda_``, that follow the gap between confidence and accuracy on validation.

    The outer step is ``lambda_ <- clamp(lambda_ * exp(rho * gap))``, with the mean of confidence minus accuracy of each
    region as the gap: an overconfident region pays more, an underconfident one less. ``rho`` is the pace and stays.

    Args:
        num_classes: ``K``.
        regions: ``R``.
        lambdas: Initial, smallest and largest price.
        pace: ``rho``.
        by_class: Whether each class of a region has its own gap. A class without a voxel takes that of the region.

    Attributes:
        previous: The gaps of the last step, ``(R, K)``; infinite before the first.
    """

    def __init__(
        self, num_classes: int, regions: int, lambdas: tuple[float, float, float], pace: float, by_class: bool
    ) -> None:
        check_number("rho", pace, above=0)
        super().__init__(num_classes, regions, "region", lambdas, (pace, pace, pace), 1.0, 1.0, 1)
        self.by_class = by_class

    @torch.no_grad()
    def update(self) -> None:
        """Take the outer step from everything observed since the last one, over all ranks.

        Raises:
            InputError: Nothing was observed, or the logits observed were not finite.
        """
        sums, _ = self.observation()
        together = sums.sum(-1, keepdim=True).expand_as(sums)
        own = (sums[1] > 0) & self.by_class
        excess, size = torch.where(own, sums, together)
        seen = size > 0
        gap = excess / torch.where(seen, size, 1)
        price = self.lambda_ * (self.rho * gap).exp()
        self.lambda_.copy_(torch.where(seen, price, self.lambda_).clamp(*self.lambda_bounds))
        self.previous.copy_(torch.where(seen, gap, self.previous))


def gap_sums(
    logits: Tensor,
    labels: Tensor,
    signal: Signal,
    by_class: bool,
    border: Border,
    radii: Sequence[int],
    ignore_index: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Return what :class:`SignedMultipliers` learns from one batch, without waiting for the device.

    Args:
        logits: ``(B, K, *S)``.
        labels: ``(B, *S)``.
        signal: ``"predicted"`` takes the voxels predicted as foreground, by the class and the region they have in the
            map of predictions; ``"all"`` takes all voxels, by the class and the region they have in the labels.
        by_class: Whether to keep the classes apart; otherwise the first stands for all.
        border: What lies outside the image, see :func:`crac.functional.region_map`.
        radii: Radii of the regions, likewise.
        ignore_index: Label of pixels that do not count.

    Returns:
        Sums ``(2, R, K)`` of confidence minus accuracy, and of voxels; and the valid voxels of each region ``(R,)``.
    """
    confidence, predicted = logits.softmax(1).max(1)
    right = predicted == labels
    valid = torch.ones_like(right) if ignore_index is None else labels != ignore_index
    classes, ignored = (labels, ignore_index) if signal == "all" else (predicted, None)
    counted = valid if signal == "all" else valid & (predicted > 0)
    region = region_map(classes, border, radii, ignored)
    dtype = torch.float32 if logits.device.type == "mps" else torch.float64
    excess = torch.where(valid, confidence.to(dtype) - right.to(dtype), 0)
    cells, counts = [], []
    for number in range(len(radii) + 1):
        counts.append(((region == number) & valid).sum())
        here = (region == number) & counted
        for cell in [here & (classes == k) for k in range(logits.shape[1])] if by_class else [here]:
            cells.append(torch.stack([torch.where(cell, excess, 0).sum(), cell.sum(dtype=dtype)]))
    broken = 0 * excess.sum()  # NaN if any confidence is, also one that no cell counts
    sums = torch.stack(cells).view(len(radii) + 1, -1, 2).movedim(-1, 0) + broken
    return F.pad(sums, (0, logits.shape[1] - sums.shape[2])), torch.stack(counts)
