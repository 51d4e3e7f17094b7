"""The paper's two backbones, in 2-D and 3-D."""

from crac.networks.frame import COARSEST, Framed
from crac.networks.nnunet import build_nnunet
from crac.networks.registry import BACKBONES, build_network
from crac.networks.unet import UNet, build_unet

__all__ = ["BACKBONES", "COARSEST", "Framed", "UNet", "build_network", "build_nnunet", "build_unet"]
