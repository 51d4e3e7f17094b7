"""Every network: any image size, both dimensions, compiled."""

import pytest
import torch

from crac.errors import InputError
from crac.networks import BACKBONES, build_network


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


@pytest.mark.parametrize("backbone", BACKBONES)
@pytest.mark.parametrize("size", [(32, 32), (47, 50), (96, 64), (1, 33), (10, 33, 40)])
def test_any_size_and_every_parameter_is_used(backbone: str, size: tuple[int, ...]) -> None:
    network = build_network(backbone, 2, 3, dims=len(size), width=2)
    logits = network(torch.randn(2, 2, *size))
    assert logits.shape == (2, 3, *size)
    logits.square().sum().backward()
    assert all(parameter.grad is not None for parameter in network.parameters())


@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize("backbone", BACKBONES)
def test_the_least_width_is_1(backbone: str, channels: int) -> None:
    """A level may have as many filters as the images have channels."""
    network = build_network(backbone, channels, 2, width=1)
    assert network(torch.randn(1, channels, 32, 32)).shape == (1, 2, 32, 32)


def test_bad_arguments_name_what_is_accepted() -> None:
    with pytest.raises(InputError, match="backbone must be one of unet, nnunet; got 'resnet'"):
        build_network("resnet", 1, 4)
    with pytest.raises(InputError, match="dims must be one of 2, 3; got 4"):
        build_network("unet", 1, 4, dims=4)
    with pytest.raises(InputError, match="width must be"):
        build_network("unet", 1, 4, width=0)
    for strides in ([2, 2, 2], [[2, 2]], [[2, 2, 2]] * 3, [[2, 0]] * 3, [[4, 4], [2, 2]]):
        with pytest.raises(InputError, match="strides must be at least 2 times 2 numbers, each 1 or 2; got"):
            build_network("nnunet", 1, 4, strides=strides)


@pytest.mark.parametrize("dims", [2, 3])
@pytest.mark.parametrize("backbone", BACKBONES)
def test_deep_supervision_answers_on_coarser_grids_while_it_trains(backbone: str, dims: int) -> None:
    network = build_network(backbone, 1, 3, dims, width=2, deep_supervision=True)
    images = torch.randn(2, 1, *[64] * dims)
    outputs = network.train()(images)
    assert [output.shape for output in outputs] == [(2, 3, *[side] * dims) for side in (64, 32, 16, 8)]
    sum(output.square().mean() for output in outputs).backward()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in network.parameters())
    with torch.no_grad():
        torch.testing.assert_close(network.eval()(images), network.train()(images)[0])
        assert network.eval()(images[..., :50]).shape[-1] == 50
        narrow, padding = images[..., :40], -(-40 // network.stride[-1]) * network.stride[-1] - 40
        left = padding // 2 // 8 * 8
        framed = [torch.nn.functional.pad(narrow, (left, padding - left)), narrow]
        for level, (whole, cropped) in enumerate(zip(*map(network.train(), framed), strict=True)):
            torch.testing.assert_close(whole[..., left >> level : left + 40 >> level], cropped)
    eights = " ".join(["8"] * dims)
    with pytest.raises(InputError, match=f"images must have sides that are multiples of {eights} for deep"):
        network.train()(images[..., :50])
