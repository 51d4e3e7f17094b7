"""A loss over the outputs of a network at several resolutions."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from crac.errors import InputError
from crac.losses.base import SegmentationLoss


class DeepSupervision(nn.Module):
    """The whole loss on the first, full-resolution output; its supervised part on the coarser ones.

    Neighbourhoods and regions mean what they say at full resolution only, so the calibration penalty is taken
    there, and multipliers are observed there.

    Args:
        loss: Any loss of :data:`crac.METHODS`.
        weights: One weight per output; by default 1, 1/2, 1/4, ... They are divided by their sum.
    """

    def __init__(self, loss: SegmentationLoss, weights: Sequence[float] | None = None) -> None:
        super().__init__()
        if weights is not None and not (min(weights, default=0) >= 0 and 0 < sum(weights) < math.inf):
            raise InputError(f"weights must be finite, not negative nor all 0; got {weights!r}")
        self.loss = loss
        self.weights = weights

    def forward(self, outputs: Tensor | Sequence[Tensor], labels: Tensor) -> Tensor:
        """Return the weighted mean over the outputs.

        Args:
            outputs: Logits ``(B, K, *S)``, ``(B, K, *S')``, ..., the finest first; or the finest alone, which many
                networks return in eval mode.
            labels: ``(B, *S)`` or ``(B, 1, *S)`` at full resolution; coarser ones are picked from them.
        """
        if isinstance(outputs, Tensor):
            alone: Tensor = self.loss(outputs, labels)
            return alone
        if not len(outputs):
            raise InputError("outputs must hold at least one logit map; got none")
        weights = [0.5**level for level in range(len(outputs))] if self.weights is None else self.weights
        if len(weights) != len(outputs):
            raise InputError(f"outputs must be {len(weights)} logit maps, one per weight; got {len(outputs)}")
        total: Tensor = weights[0] * self.loss(outputs[0], labels)
        full = labels if labels.ndim == outputs[0].ndim else labels.unsqueeze(1)
        for weight, logits in zip(weights[1:], outputs[1:], strict=True):
            if weight:
                total = total + weight * self.loss.supervised(logits, _nearest(full, logits.shape[2:]))
        return total / sum(weights)

    def observe(self, outputs: Tensor | Sequence[Tensor], labels: Tensor) -> None:
        """Pass the full-resolution output on to the loss."""
        self.loss.observe(outputs if isinstance(outputs, Tensor) else outputs[0], labels)

    def update_multipliers(self) -> None:
        """Take the outer step of the loss."""
        self.loss.update_multipliers()


def _nearest(labels: Tensor, size: Sequence[int]) -> Tensor:
    """Return labels ``(B, 1, *S)`` at another resolution: the one under each coarse pixel's centre."""
    for dim, wanted in enumerate(size, start=2):
        centres = (2 * torch.arange(wanted, device=labels.device) + 1) * labels.shape[dim] // (2 * wanted)
        labels = labels.index_select(dim, centres)
    return labels
