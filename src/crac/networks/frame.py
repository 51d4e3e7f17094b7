"""What a network needs around it: images of one scale and of a size it can halve several times."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from crac.errors import InputError

COARSEST = 8
"""How much coarser than the images the coarsest level is that deep supervision asks."""


class Framed(nn.Module):
    """A network whose input is padded with zeros to whole strides and standardised, and whose output is cropped back.

    A network without normalisation learns badly from images of small contrast, so the intensities are brought to mean 0
    and standard deviation 1 of the training set. Both numbers are saved with the weights.

    Args:
        network: Maps ``(B, C, *S)`` to ``(B, K, *S)`` for sizes ``S`` that are multiples of ``stride``. With deep
            supervision it answers with a list while it trains, the finest logits first.
        channels: Number of channels ``C``.
        stride: What the network divides each side by on its way down.
        coarse: How much coarser the coarsest of several answers is than the images, whose sides it must then divide.
    """

    mean: Tensor
    deviation: Tensor

    def __init__(self, network: nn.Module, channels: int, stride: int, coarse: int = 1) -> None:
        super().__init__()
        self.network = network
        self.stride, self.coarse = stride, coarse
        self.register_buffer("mean", torch.zeros(channels))
        self.register_buffer("deviation", torch.ones(channels))

    def standardise(self, mean: Tensor, deviation: Tensor) -> None:
        """Take over the statistics of a training set, ``(C,)`` each; a channel that never varies is only shifted."""
        self.mean.copy_(mean)
        self.deviation.copy_(torch.where(deviation > 0, deviation, 1.0))

    def forward(self, images: Tensor) -> Tensor | list[Tensor]:
        """Return logits ``(B, K, *S)`` of images ``(B, C, *S)``; several of them from deep supervision in training."""
        size = images.shape[2:]
        padded = [-(-side // self.stride) * self.stride for side in size]
        if all(side == self.stride for side in padded):
            padded[-1] += self.stride  # a single pixel at the bottom has no statistics to normalise by
        # In whole pixels of the coarsest grid, so that these can be cropped away too.
        before = [(whole - side) // 2 // self.coarse * self.coarse for whole, side in zip(padded, size, strict=True)]
        after = [whole - side - left for whole, side, left in zip(padded, size, before, strict=True)]
        pads = [amount for pair in zip(reversed(before), reversed(after), strict=True) for amount in pair]
        if any(pads):
            images = F.pad(images, pads)
        mean, deviation = (values.view(-1, *[1] * len(size)) for values in (self.mean, self.deviation))
        logits: Tensor | list[Tensor] = self.network((images - mean) / deviation)
        if isinstance(logits, Tensor):
            return _crop(logits, before, size)
        if any(side % self.coarse for side in size):
            accepted = f"sides that are multiples of {self.coarse} for deep supervision"
            raise InputError(f"images must have {accepted}; got {tuple(size)}")
        factors = [padded[0] // level.shape[2] for level in logits]
        return [
            _crop(level, [left // factor for left in before], [side // factor for side in size])
            for level, factor in zip(logits, factors, strict=True)
        ]


def _crop(logits: Tensor, before: Sequence[int], size: Sequence[int]) -> Tensor:
    for axis, (left, side) in enumerate(zip(before, size, strict=True), start=2):
        logits = logits.narrow(axis, left, side)
    return logits
