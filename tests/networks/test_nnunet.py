"""The network of nnU-Net."""

import pytest
import torch
import torch.nn.functional as F
from monai.networks.nets import DynUNet

from crac.networks import build_network, nnunet


def test_nnunet_is_residual_with_instance_norm_and_one_output() -> None:
    network = build_network("nnunet", 1, 4)
    names = {type(module).__name__ for module in network.modules()}
    assert "UnetResBlock" in names
    assert "InstanceNorm" in names
    assert not any("Norm2d" in name or "BatchNorm" in name for name in names)
    assert len(network.network.downsamples) + 2 == 6
    network.train()
    assert network(torch.randn(1, 1, 64, 64)).shape == (1, 4, 64, 64)


@pytest.mark.parametrize("size", [(9, 7), (1, 12), (4, 5, 6)])
@pytest.mark.parametrize("offset", [0.0, 1000.0])
def test_compiled_instance_norm_is_torch_s(size: tuple[int, ...], offset: float) -> None:
    torch.manual_seed(0)
    images = (3 * torch.randn(2, 4, *size) + offset).requires_grad_()
    images.data[:, 0] = offset  # a channel that never varies
    weights = torch.randn(2, 4, *size)
    found = torch.compile(nnunet.InstanceNorm(1e-5), backend="aot_eager")(images)
    expected = F.instance_norm(images.double(), eps=1e-5)
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=2e-4 if offset else 5e-6)
    (gradient,) = torch.autograd.grad((found * weights).sum(), images)
    (exact,) = torch.autograd.grad((expected * weights).sum(), images)
    torch.testing.assert_close(gradient[:, 1:], exact[:, 1:], rtol=1e-3, atol=1e-4)
    assert gradient.isfinite().all()


def test_compiled_instance_norm_keeps_the_type() -> None:
    images = torch.randn(1, 2, 8, 8, dtype=torch.float64, requires_grad=True)
    norm = torch.compile(nnunet.InstanceNorm(1e-5), backend="aot_eager")
    torch.testing.assert_close(norm(images), F.instance_norm(images, eps=1e-5), rtol=0, atol=1e-12)
    half = norm(images.bfloat16())
    assert half.dtype == torch.bfloat16
    torch.testing.assert_close(half.double(), F.instance_norm(images.bfloat16().double(), eps=1e-5), rtol=0, atol=0.02)


@pytest.mark.parametrize("size", [(16, 24), (8, 16, 8)])
def test_one_channel_is_scaled_as_its_convolution_would(size: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    network = build_network("nnunet", 1, 3, len(size), width=4)
    images, weights = torch.randn(2, 1, *size), torch.randn(2, 3, *size)
    found = []
    for forward in (network, torch.compile(network, backend="aot_eager")):
        network.zero_grad()
        logits = forward(images)
        (logits * weights).sum().backward()
        found.append((logits.detach(), [parameter.grad.clone() for parameter in network.parameters()]))
    (plain, gradients), (compiled, others) = found
    torch.testing.assert_close(compiled, plain, rtol=1e-4, atol=1e-4)
    for own, other in zip(gradients, others, strict=True):
        torch.testing.assert_close(other, own, rtol=1e-3, atol=1e-3 * float(own.abs().max()))


@pytest.mark.parametrize("channels", [1, 2])
def test_weights_have_the_names_of_monai_s_network(channels: int) -> None:
    names = build_network("nnunet", channels, 3, width=4).network.state_dict().keys()
    levels = 6
    theirs = DynUNet(
        2, channels, 3, [3] * levels, [1, *[2] * (levels - 1)], [2] * (levels - 1), res_block=True, norm_name="instance"
    )
    assert list(names) == list(theirs.state_dict())
