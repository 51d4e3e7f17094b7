"""The paper's networks: their size, any image size, both dimensions."""

import pytest
import torch

from crac.errors import InputError
from crac.networks import BACKBONES, build_network
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


@pytest.mark.parametrize("dims", [2, 3])
@pytest.mark.parametrize("backbone", BACKBONES)
def test_compiled_networks_are_the_same_function(backbone: str, dims: int) -> None:
    """Compiled, upsampling and instance norm are written in another way."""
    torch.manual_seed(0)
    network = build_network(backbone, 1, 2, dims, width=2).double()
    image = torch.rand(1, 1, *(64,) * dims, dtype=torch.float64, requires_grad=True)
    expected = network(image)
    (expected_gradient,) = torch.autograd.grad(expected.sin().sum(), image)
    found = torch.compile(network, backend="aot_eager")(image)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(torch.autograd.grad(found.sin().sum(), image)[0], expected_gradient)


def test_unet_reaches_as_far_as_its_last_pool_of_four() -> None:
    """The bottom pixel covers 32 input pixels: a change in one corner is felt in the opposite one of 64 pixels."""
    network = UNet(1, 2, width=4).double()
    for parameter in network.parameters():
        torch.nn.init.uniform_(parameter, 0.01, 0.1)  # no dead ReLU
    image = torch.rand(1, 1, 64, 64, dtype=torch.float64)
    changed = image.clone()
    changed[..., 0, 0] += 10
    assert (network(image) - network(changed))[..., 63, 63].abs().max() > 0


@pytest.mark.parametrize("backbone", BACKBONES)
@pytest.mark.parametrize("size", [(32, 32), (47, 50), (96, 64), (1, 33), (10, 33, 40)])
def test_any_size_and_every_parameter_is_used(backbone: str, size: tuple[int, ...]) -> None:
    network = build_network(backbone, 2, 3, dims=len(size), width=2)
    logits = network(torch.randn(2, 2, *size))
    assert logits.shape == (2, 3, *size)
    logits.square().sum().backward()
    assert all(parameter.grad is not None for parameter in network.parameters())


def test_padding_is_invisible_where_it_is_zero_anyway() -> None:
    network = build_network("unet", 1, 3, width=2)
    image = torch.zeros(1, 1, 64, 64)
    image[..., 10:50, 12:52] = torch.rand(40, 40)
    small = image[..., 10:54, 10:54]  # 44 pixels, padded by 10 on both sides
    torch.testing.assert_close(network(small), network(image)[..., 10:54, 10:54])


def test_images_are_standardised_by_the_statistics_of_the_training_set() -> None:
    network = build_network("unet", 2, 3, width=2)
    image = torch.rand(1, 2, 64, 64)
    expected = network.network(
        (image - torch.tensor([0.3, 0.1]).view(2, 1, 1)) / torch.tensor([0.2, 1.0]).view(2, 1, 1)
    )
    network.standardise(torch.tensor([0.3, 0.1]), torch.tensor([0.2, 0.0]))
    torch.testing.assert_close(network(image), expected)
    assert {"mean", "deviation"} < set(network.state_dict())


def test_nnunet_is_residual_with_instance_norm_and_one_output() -> None:
    network = build_network("nnunet", 1, 4)
    names = {type(module).__name__ for module in network.modules()}
    assert "UnetResBlock" in names
    assert "InstanceNorm" in names
    assert not any("Norm2d" in name or "BatchNorm" in name for name in names)
    assert len(network.network.downsamples) + 2 == 6
    network.train()
    assert network(torch.randn(1, 1, 64, 64)).shape == (1, 4, 64, 64)


def test_bad_arguments_name_what_is_accepted() -> None:
    with pytest.raises(InputError, match="backbone must be one of unet, nnunet; got 'resnet'"):
        build_network("resnet", 1, 4)
    with pytest.raises(InputError, match="dims must be one of 2, 3; got 4"):
        build_network("unet", 1, 4, dims=4)
    with pytest.raises(InputError, match="width must be"):
        build_network("unet", 1, 4, width=0)
