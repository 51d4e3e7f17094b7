"""What a network needs around it: images of one scale and of a size it can halve several times."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from crac.errors import InputError

COARSE = 3
"""Levels below the finest that deep supervision asks, at most."""


class Framed(nn.Module):
    """A network whose input is padded with zeros to whole strides and standardised, and whose output is cropped back.

    A network without normalisation learns badly from images of small contrast, so the intensities are brought to mean 0
    and standard deviation 1 of the training set. Both numbers are saved with the weights.

    Args:
        network: Maps ``(B, C, *S)`` to ``(B, K, *S)`` for sizes ``S`` that are multiples of ``stride``. With deep
            supervision it answers with a list while it trains, the finest logits first.
        channels: Number of channels ``C``.
        stride: What the network divides each side by on its way down, one number an axis.
        coarse: How much coarser along each axis the coarsest of several answers is than the images, whose sides it must
            then divide; 1 for a single answer.

    Attributes:
        least: Sides that smaller images are padded to.
    """

    mean: Tensor
    deviation: Tensor

    def __init__(self, network: nn.Module, channels: int, stride: Sequence[int], coarse: Sequence[int]) -> None:
        super().__init__()
        self.network = network
        self.stride, self.coarse = tuple(stride), tuple(coarse)
        self.least = self.stride
        self.register_buffer("mean", torch.zeros(channels))
        self.register_buffer("deviation", torch.ones(channels))

    def standardise(self, mean: Tensor, deviation: Tensor) -> None:
        """Take over the statistics of a training set, ``(C,)`` each; a channel that never varies is only shifted."""
        self.mean.copy_(mean)
        self.deviation.copy_(torch.where(deviation > 0, deviation, 1.0))

    def check_sides(self, name: str, size: Sequence[int]) -> None:
        """Refuse a size that has no whole number of voxels on every level that answers."""
        if any(side % coarse for side, coarse in zip(size, self.coarse, strict=True)):
            factors = " ".join(str(coarse) for coarse in self.coarse)
            accepted = f"sides that are multiples of {factors} for deep supervision"
            raise InputError(f"{name} must have {accepted}; got {tuple(size)}")

    def forward(self, images: Tensor) -> Tensor | list[Tensor]:
        """Return logits ``(B, K, *S)`` of images ``(B, C, *S)``; several of them from deep supervision in training."""
        size = images.shape[2:]
        if len(size) != len(self.stride) or images.shape[1] != len(self.mean):
            accepted = f"(B, {len(self.mean)}, *S) with {len(self.stride)} spatial dimensions"
            raise InputError(f"images must have shape {accepted}; got {tuple(images.shape)}")
        sides = [max(side, least) for side, least in zip(size, self.least, strict=True)]
        padded = [-(-side // stride) * stride for side, stride in zip(sides, self.stride, strict=True)]
        if padded == list(self.stride):
            padded[-1] += self.stride[-1]  # a single pixel at the bottom has no statistics to normalise by
        # A smaller image lies in the middle of the least sides, as in batches. They begin at one place in training
        # and in prediction: in whole pixels of the coarsest answer, so that coarse answers can be cropped too.
        steps = self.coarse if self.training else [1] * len(size)
        inner = [(least - side + 1) // 2 // step * step for least, side, step in zip(sides, size, steps, strict=True)]
        outer = [(whole - side) // 2 // c * c for whole, side, c in zip(padded, sides, self.coarse, strict=True)]
        before = [sum(pair) for pair in zip(inner, outer, strict=True)]
        after = [whole - side - left for whole, side, left in zip(padded, size, before, strict=True)]
        pads = [amount for pair in zip(reversed(before), reversed(after), strict=True) for amount in pair]
        if any(pads):
            images = F.pad(images, pads)
        mean, deviation = (values.view(-1, *[1] * len(size)) for values in (self.mean, self.deviation))
        logits: Tensor | list[Tensor] = self.network((images - mean) / deviation)
        if isinstance(logits, Tensor):
            return _crop(logits, before, size)
        self.check_sides("images", size)
        return [_crop(level, *_coarser(before, size, padded, level.shape[2:])) for level in logits]


def _coarser(
    before: Sequence[int], size: Sequence[int], padded: Sequence[int], level: Sequence[int]
) -> tuple[list[int], list[int]]:
    """Return where an image begins and how large it is on the grid of a level, whose padded images are so large."""
    factors = [whole // side for whole, side in zip(padded, level, strict=True)]
    first, second = ([side // factor for side, factor in zip(sides, factors, strict=True)] for sides in (before, size))
    return first, second


def _crop(logits: Tensor, before: Sequence[int], size: Sequence[int]) -> Tensor:
    for axis, (left, side) in enumerate(zip(before, size, strict=True), start=2):
        logits = logits.narrow(axis, left, side)
    return logits
