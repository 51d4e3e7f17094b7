"""Backbones by their short names."""

from collections.abc import Callable

from crac.errors import InputError, check_number, one_of
from crac.networks.frame import Framed
from crac.networks.nnunet import Strides, build_nnunet
from crac.networks.unet import build_unet

BACKBONES: dict[str, Callable[..., Framed]] = {"unet": build_unet, "nnunet": build_nnunet}
"""Short name -> function of (channels, num_classes, dims, width, deep_supervision), and of strides for ``nnunet``."""


def build_network(
    backbone: str,
    channels: int,
    num_classes: int,
    dims: int = 2,
    width: int = 32,
    deep_supervision: bool = False,
    strides: Strides | None = None,
) -> Framed:
    """Make a backbone by its short name.

    Args:
        backbone: One of :data:`BACKBONES`.
        channels: Number of channels of the images.
        num_classes: Number of classes ``K``, the background included.
        dims: 2 for images ``(B, C, H, W)``, 3 for ``(B, C, D, H, W)``.
        width: Filters of the first level; the paper's networks have 32.
        deep_supervision: Let the coarser levels answer too while the network trains; the paper's networks do not.
        strides: How much each way down of ``nnunet`` shrinks, one number an axis (see :func:`~crac.networks.halvings`);
            by default every side is halved five times.

    Example:
        >>> network = build_network("unet", channels=1, num_classes=4)
        >>> sum(parameter.numel() for parameter in network.parameters())
        7846180
    """
    if backbone not in BACKBONES:
        raise one_of("backbone", backbone, BACKBONES)
    if dims not in (2, 3):
        raise one_of("dims", dims, (2, 3))
    check_number("width", width, least=1, whole=True)
    if strides is None:
        return BACKBONES[backbone](channels, num_classes, dims, width, deep_supervision)
    if backbone != "nnunet":
        raise InputError(f"strides can be chosen for nnunet only; got {backbone}")
    return build_nnunet(channels, num_classes, dims, width, deep_supervision, strides)
