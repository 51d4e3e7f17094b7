"""The paper's two backbones, in 2-D and 3-D."""

from crac.networks.frame import Framed
from crac.networks.nnunet import build_nnunet, halvings
from crac.networks.registry import BACKBONES, build_network
from crac.networks.unet import UNet, build_unet

__all__ = ["BACKBONES", "Framed", "UNet", "build_network", "build_nnunet", "build_unet", "halvings"]
