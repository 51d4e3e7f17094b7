"""``unet``: the plain U-Net of the paper's first table."""

import math
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from crac.networks.frame import COARSE, Framed

POOLS = (2, 2, 2, 4)
"""How much each way down shrinks; the way up mirrors it."""


class UNet(nn.Module):
    """Five levels of two convolutions with ReLU, no normalisation; max-pooling down, nearest neighbour up.

    The filters double at each level below the first. The arguments are those of
    :func:`~crac.networks.registry.build_network`.
    """

    def __init__(
        self, channels: int, num_classes: int, dims: int = 2, width: int = 32, deep_supervision: bool = False
    ) -> None:
        super().__init__()
        convolution = {2: nn.Conv2d, 3: nn.Conv3d}[dims]
        filters = [width * 2**level for level in range(len(POOLS) + 1)]

        def level(before: int, after: int) -> nn.Sequential:
            return nn.Sequential(
                convolution(before, after, 3, padding=1),
                nn.ReLU(inplace=True),
                convolution(after, after, 3, padding=1),
                nn.ReLU(inplace=True),
            )

        self.down = nn.ModuleList(map(level, [channels, *filters], filters))
        self.up = nn.ModuleList(level(low + high, high) for high, low in reversed(list(pairwise(filters))))
        self.head = convolution(width, num_classes, 1)
        if deep_supervision:
            self.coarse_heads = nn.ModuleList(convolution(count, num_classes, 1) for count in filters[1:-1])
        self.coarse = len(filters) - 2 if deep_supervision else 0

    def forward(self, images: Tensor) -> Tensor | list[Tensor]:
        """Logits ``(B, K, *S)`` of images ``(B, C, *S)``, ``S`` multiples of 32; see :class:`Framed`."""
        max_pool = F.max_pool2d if images.ndim == 4 else F.max_pool3d
        features = self.down[0](images)
        skips = []
        for pool, level in zip(POOLS, self.down[1:], strict=True):
            skips.append(features)
            features = level(max_pool(features, pool))
        coarse: list[Tensor] = []
        for pool, level in zip(reversed(POOLS), self.up, strict=True):
            features = level(torch.cat([upsample(features, pool), skips.pop()], dim=1))
            if self.training and 0 < len(skips) <= self.coarse:
                coarse.insert(0, self.coarse_heads[len(skips) - 1](features))
        logits: Tensor = self.head(features)
        return [logits, *coarse] if coarse else logits


def upsample(features: Tensor, factor: int) -> Tensor:
    """Repeat every value along every axis of space, as nearest-neighbour interpolation does."""
    if not torch.compiler.is_compiling():
        return F.interpolate(features, scale_factor=float(factor), mode="nearest")
    # The compiler turns the gradient of `interpolate` into a scatter with atomic additions, a fifth of a step on a GPU;
    # that of `expand` is a sum.
    batch, channels, *size = features.shape
    spread = features.reshape(batch, channels, *(side for length in size for side in (length, 1)))
    spread = spread.expand(batch, channels, *(side for length in size for side in (length, factor)))
    upsampled = spread.reshape(batch, channels, *(length * factor for length in size))
    layout = {2: torch.channels_last, 3: torch.channels_last_3d}[len(size)]
    return upsampled.contiguous(memory_format=layout) if features.is_contiguous(memory_format=layout) else upsampled


def build_unet(
    channels: int, num_classes: int, dims: int = 2, width: int = 32, deep_supervision: bool = False
) -> Framed:
    """Return a :class:`UNet` for images of any size."""
    network = UNet(channels, num_classes, dims, width, deep_supervision)
    coarse = math.prod(POOLS[:COARSE]) if deep_supervision else 1
    return Framed(network, channels, [math.prod(POOLS)] * dims, [coarse] * dims)
