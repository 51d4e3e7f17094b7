"""nnU-Net's own loss with a calibration method beside it."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from crac.losses.base import SegmentationLoss

Output = Tensor | Sequence[Tensor]


class CalibratedLoss(nn.Module):
    """What nnU-Net computes, plus a method's penalty on the full-resolution output.

    In eval mode each call is also observed for the outer step: nnU-Net calls its loss on every validation batch,
    so the validation step itself stays nnU-Net's.

    Args:
        loss: nnU-Net's loss, deep supervision included.
        calibration: Any loss of :data:`crac.METHODS` but ``bwcr``, of which the penalty is taken.
        weight: Weight of the full-resolution output among those of deep supervision, 1 without it.
    """

    def __init__(self, loss: nn.Module, calibration: SegmentationLoss, weight: float = 1.0) -> None:
        super().__init__()
        self.loss, self.calibration, self.weight = loss, calibration, weight

    def forward(self, output: Output, target: Output) -> Tensor:
        """Return the loss of one batch.

        Args:
            output: Logits ``(B, K, *S)``, or a list of them, the finest first.
            target: Labels ``(B, 1, *S)`` of any dtype, in the same form.
        """
        value: Tensor = self.loss(output, target)
        logits, labels = _finest(output), _integers(_finest(target))
        if not self.training:
            self.calibration.observe(logits, labels)
        return value + self.weight * self.calibration.penalty(logits, labels)


class Fit(nn.Module):
    """A method's fitting term in place of nnU-Net's cross-entropy."""

    def __init__(self, calibration: SegmentationLoss) -> None:
        super().__init__()
        self.calibration = calibration

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """Return the term, at any resolution; labels are ``(B, *S)`` or ``(B, 1, *S)``."""
        return self.calibration.fit(logits, _integers(target))


def _finest(outputs: Output) -> Tensor:
    return outputs if isinstance(outputs, Tensor) else outputs[0]


def _integers(target: Tensor) -> Tensor:
    """Return labels as integers: nnU-Net's are ``int16``, which the kernels read, or floating."""
    return target.to(torch.int16) if target.is_floating_point() else target
