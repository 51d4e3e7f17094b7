"""Images of any size for networks that halve theirs several times."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

__all__ = ["Padded"]


class Padded(nn.Module):
    """A network whose input is padded with zeros to whole strides, and whose output is cropped back.

    Args:
        network: Maps ``(B, C, *S)`` to ``(B, K, *S)`` for sizes ``S`` that are multiples of ``stride``.
        stride: What the network divides each side by on its way down.
    """

    def __init__(self, network: nn.Module, stride: int) -> None:
        super().__init__()
        self.network = network
        self.stride = stride

    def forward(self, images: Tensor) -> Tensor:
        """Logits ``(B, K, *S)`` of images ``(B, C, *S)``."""
        size = images.shape[2:]
        padded = [-(-side // self.stride) * self.stride for side in size]
        if all(side == self.stride for side in padded):
            padded[-1] += self.stride  # a single pixel at the bottom has no statistics to normalise by
        if padded == list(size):
            logits: Tensor = self.network(images)
            return logits
        before = [(whole - side) // 2 for whole, side in zip(padded, size, strict=True)]
        after = [whole - side - left for whole, side, left in zip(padded, size, before, strict=True)]
        pads = [amount for pair in zip(reversed(before), reversed(after), strict=True) for amount in pair]
        logits = self.network(F.pad(images, pads))
        for axis, (left, side) in enumerate(zip(before, size, strict=True), start=2):
            logits = logits.narrow(axis, left, side)
        return logits
