"""The U-Net of the paper: its size, its levels and its reach."""

import torch

from crac.networks import build_network
from crac.networks.unet import UNet


def count(network: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters())


def test_unet_has_the_released_parameter_count() -> None:
    assert count(build_network("unet", 1, 4)) == 7_846_180


def test_unet_has_five_levels_without_normalisation() -> None:
    network = UNet(1, 4)
    convolutions = [module for module in network.modules() if isinstance(module, torch.nn.Conv2d)]
    assert [module.out_channels for module in convolutions] == [
        *[32, 32, 64, 64, 128, 128, 256, 256, 512, 512],
        *[256, 256, 128, 128, 64, 64, 32, 32, 4],
    ]
    kinds = {type(module) for module in network.modules() if not list(module.children())}
    assert kinds == {torch.nn.Conv2d, torch.nn.ReLU}


def test_unet_reaches_as_far_as_its_last_pool_of_four() -> None:
    """The bottom pixel covers 32 input pixels: a change in one corner is felt in the opposite one of 64 pixels."""
    network = UNet(1, 2, width=4).double()
    for parameter in network.parameters():
        torch.nn.init.uniform_(parameter, 0.01, 0.1)  # no dead ReLU
    image = torch.rand(1, 1, 64, 64, dtype=torch.float64)
    changed = image.clone()
    changed[..., 0, 0] += 10
    assert (network(image) - network(changed))[..., 63, 63].abs().max() > 0
