"""``nnunet``: the residual U-Net with instance norm of the paper's second table."""

from __future__ import annotations

from crac.errors import require
from crac.networks.frame import Framed

__all__ = ["build_nnunet"]

LEVELS = 6
MOST_FILTERS = {2: 512, 3: 320}


def build_nnunet(channels: int, num_classes: int, dims: int = 2, width: int = 32) -> Framed:
    """MONAI's ``DynUNet`` with six levels, residual blocks and no deep supervision, for images of any size.

    Args:
        channels: Of the images.
        num_classes: ``K``.
        dims: 2 or 3.
        width: Filters of the first level, doubled at each level below up to 512 (320 in 3-D).
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
    return Framed(network, channels, stride=2 ** (LEVELS - 1))
