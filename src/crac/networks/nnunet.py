"""``nnunet``: the residual U-Net with instance norm of the paper's second table."""

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from crac.errors import InputError, require
from crac.networks.frame import COARSE, Framed

Strides = Sequence[Sequence[int]]
"""How much each way down shrinks, one number an axis."""

WAYS_DOWN = 5
"""Levels below the first in the paper's network, each of which halves every side; others have at most so many."""

SMALLEST = 4
"""Sides are not halved below it."""

MOST_FILTERS = {2: 512, 3: 320}


def build_nnunet(
    channels: int,
    num_classes: int,
    dims: int = 2,
    width: int = 32,
    deep_supervision: bool = False,
    strides: Strides | None = None,
) -> Framed:
    """Return MONAI's ``DynUNet`` with residual blocks, for images of any size.

    The filters double at each level below the first, up to 512 (320 in 3-D). The arguments are those of
    :func:`~crac.networks.registry.build_network`.
    """
    ways = [[2] * dims] * WAYS_DOWN if strides is None else strides
    downs = [[way] if isinstance(way, int) else list(way) for way in ways]
    if len(downs) < 2 or any(len(way) != dims or not {1, 2}.issuperset(way) for way in downs):
        raise InputError(f"strides must be at least 2 times {dims} numbers, each 1 or 2; got {strides}")
    levels = len(downs) + 1
    dynunet = require("monai.networks.nets").DynUNet
    network = dynunet(
        spatial_dims=dims,
        in_channels=channels,
        out_channels=num_classes,
        kernel_size=[3] * levels,
        strides=[1, *downs],
        upsample_kernel_size=downs,
        filters=[min(width * 2**level, MOST_FILTERS[dims]) for level in range(levels)],
        norm_name="instance",
        res_block=True,
        deep_supervision=False,
    )
    for module in list(network.modules()):
        for name, child in module.named_children():
            if isinstance(child, nn.InstanceNorm2d | nn.InstanceNorm3d):
                setattr(module, name, InstanceNorm(child.eps))
    if channels == 1 and width > 1:  # with as many filters as channels the block has no such convolution
        network.input_block.conv3.conv = Scaled(network.input_block.conv3.conv.weight)
    stride = [math.prod(axis) for axis in zip(*downs, strict=True)]
    if not deep_supervision:
        return Framed(network, channels, stride, [1] * dims)
    coarse = min(COARSE, levels - 2)
    asked = [math.prod(axis) for axis in zip(*downs[:coarse], strict=True)]
    return Framed(DeeplySupervised(network, dims, num_classes, coarse), channels, stride, asked)


def halvings(size: Sequence[int], spacing: Sequence[float]) -> list[tuple[int, ...]]:
    """Return strides that suit images of this size, whose voxels lie so far apart, by the rule of nnU-Net.

    A side is halved as long as at least :data:`SMALLEST` voxels are left, and not before the others where its voxels
    lie twice as far apart as theirs: so the voxels of the lower levels become cubes.
    """
    sides, steps = [float(side) for side in size], list(spacing)
    found: list[tuple[int, ...]] = []
    while len(found) < WAYS_DOWN:
        able = [axis for axis, side in enumerate(sides) if side >= 2 * SMALLEST]
        finest = min((steps[axis] for axis in able), default=0)
        way = tuple(2 if axis in able and steps[axis] < 2 * finest else 1 for axis in range(len(sides)))
        if max(way) == 1:
            break
        found.append(way)
        sides = [side / stride for side, stride in zip(sides, way, strict=True)]
        steps = [step * stride for step, stride in zip(steps, way, strict=True)]
    return found + [(1,) * len(sides)] * (2 - len(found))


class DeeplySupervised(nn.Module):
    """A ``DynUNet`` whose coarser levels answer too while it trains, each on its own grid.

    MONAI's own deep supervision brings every answer to full resolution first, and keeps them between steps.

    Args:
        network: A network without deep supervision.
        dims: 2 or 3.
        num_classes: Number of classes ``K``.
        coarse: How many of the levels below the finest answer.
    """

    def __init__(self, network: Any, dims: int, num_classes: int, coarse: int) -> None:
        super().__init__()
        self.network = network
        convolution = {2: nn.Conv2d, 3: nn.Conv3d}[dims]
        filters = network.filters[1 : 1 + coarse]
        self.coarse_heads = nn.ModuleList(convolution(count, num_classes, 1) for count in filters)

    def forward(self, images: Tensor) -> Tensor | list[Tensor]:
        """Return logits ``(B, K, *S)``, in training followed by those of the levels below it."""
        if not self.training:
            answer: Tensor = self.network(images)
            return answer
        skips = [self.network.input_block(images)]
        for level in self.network.downsamples:
            skips.append(level(skips[-1]))
        features = self.network.bottleneck(skips[-1])
        coarse: list[Tensor] = []
        for level in self.network.upsamples:
            features = level(features, skips.pop())
            if 0 < len(skips) <= len(self.coarse_heads):
                coarse.insert(0, self.coarse_heads[len(skips) - 1](features))
        return [self.network.output_block(features), *coarse]


class Scaled(nn.Module):
    """A convolution over one channel and one voxel, which where it is compiled is the product that it amounts to.

    A convolution whose input and weights look alike in every memory layout answers in planes, not in channels-last;
    the compiler would turn all that follows from it. The product it takes into the norm behind it.

    Args:
        weight: ``(O, 1, 1, 1)``, in 3-D ``(O, 1, 1, 1, 1)``.
    """

    def __init__(self, weight: nn.Parameter) -> None:
        super().__init__()
        self.weight = weight

    def forward(self, images: Tensor) -> Tensor:
        """Return ``(B, O, *S)`` of images ``(B, 1, *S)``."""
        if torch.compiler.is_compiling():
            return images * self.weight.transpose(0, 1)
        convolve = F.conv2d if images.ndim == 4 else F.conv3d
        return convolve(images, self.weight)


class InstanceNorm(nn.Module):
    """Instance norm without parameters, in 2-D and 3-D, in a form of its own where it is compiled.

    The compiler's form of torch's lines up all channels of all images, which takes channels-last images apart. Sums are
    taken in two stages, along the rows and then over them, which keeps a GPU busier than one stage over few channels.
    """

    def __init__(self, eps: float) -> None:
        super().__init__()
        self.eps = eps

    def forward(self, images: Tensor) -> Tensor:
        """Return each channel of each image with mean 0 and variance 1."""
        if not torch.compiler.is_compiling():
            return F.instance_norm(images, eps=self.eps)
        wide = images if images.dtype == torch.float64 else images.float()
        corner = wide.detach()
        for axis in range(2, images.ndim):
            corner = corner.narrow(axis, 0, 1)
        centred = wide - corner  # else the variance would be a difference of two large squares
        rest = tuple(range(2, images.ndim - 1))
        total, squares = (one.sum(-1, keepdim=True).sum(rest, keepdim=True) for one in (centred, centred**2))
        count = images[0, 0].numel()
        mean = total / count
        variance = (squares / count - mean**2).clamp(min=0)
        return ((centred - mean) * (variance + self.eps).rsqrt()).to(images.dtype)
