"""``nnunet``: the residual U-Net with instance norm of the paper's second table."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from crac.errors import require
from crac.networks.frame import COARSEST, Framed

LEVELS = 6
COARSE = COARSEST.bit_length() - 1
"""Levels below the finest that deep supervision asks."""

MOST_FILTERS = {2: 512, 3: 320}


def build_nnunet(
    channels: int, num_classes: int, dims: int = 2, width: int = 32, deep_supervision: bool = False
) -> Framed:
    """Return MONAI's ``DynUNet`` with six levels and residual blocks, for images of any size.

    The filters double at each level below the first, up to 512 (320 in 3-D). The arguments are those of
    :func:`~crac.networks.registry.build_network`.
    """
    dynunet = require("monai.networks.nets").DynUNet
    strides = [1] + [2] * (LEVELS - 1)
    network = dynunet(
        spatial_dims=dims,
        in_channels=channels,
        out_channels=num_classes,
        kernel_size=[3] * LEVELS,
        strides=strides,
        upsample_kernel_size=strides[1:],
        filters=[min(width * 2**level, MOST_FILTERS[dims]) for level in range(LEVELS)],
        norm_name="instance",
        res_block=True,
        deep_supervision=False,
    )
    for module in list(network.modules()):
        for name, child in module.named_children():
            if isinstance(child, nn.InstanceNorm2d | nn.InstanceNorm3d):
                setattr(module, name, InstanceNorm(child.eps))
    stride = 2 ** (LEVELS - 1)
    if not deep_supervision:
        return Framed(network, channels, stride)
    return Framed(DeeplySupervised(network, dims, num_classes), channels, stride, coarse=COARSEST)


class DeeplySupervised(nn.Module):
    """A ``DynUNet`` whose coarser levels answer too while it trains, each on its own grid.

    MONAI's own deep supervision brings every answer to full resolution first, and keeps them between steps.

    Args:
        network: Without deep supervision.
        dims: 2 or 3.
        num_classes: Number of classes ``K``.
    """

    def __init__(self, network: Any, dims: int, num_classes: int) -> None:
        super().__init__()
        self.network = network
        convolution = {2: nn.Conv2d, 3: nn.Conv3d}[dims]
        coarse = network.filters[1 : 1 + COARSE]
        self.coarse_heads = nn.ModuleList(convolution(count, num_classes, 1) for count in coarse)

    def forward(self, images: Tensor) -> Tensor | list[Tensor]:
        """Return logits ``(B, K, *S)``, in training followed by those of half, a quarter and an eighth of the size."""
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
            if 0 < len(skips) <= COARSE:
                coarse.insert(0, self.coarse_heads[len(skips) - 1](features))
        return [self.network.output_block(features), *coarse]


class InstanceNorm(nn.Module):
    """Instance norm without parameters, in 2-D and 3-D, in a form of its own where it is compiled.

    The compiler's form of torch's lines up all channels of all images, which takes channels-last images apart.
    """

    def __init__(self, eps: float) -> None:
        super().__init__()
        self.eps = eps

    def forward(self, images: Tensor) -> Tensor:
        """Return each channel of each image with mean 0 and variance 1."""
        if not torch.compiler.is_compiling():
            return F.instance_norm(images, eps=self.eps)
        wide = images if images.dtype == torch.float64 else images.float()
        variance, mean = torch.var_mean(wide, tuple(range(2, images.ndim)), correction=0, keepdim=True)
        return ((wide - mean) * (variance + self.eps).rsqrt()).to(images.dtype)
