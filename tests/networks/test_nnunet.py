"""The network of nnU-Net."""

import torch

from crac.networks import build_network


def test_nnunet_is_residual_with_instance_norm_and_one_output() -> None:
    network = build_network("nnunet", 1, 4)
    names = {type(module).__name__ for module in network.modules()}
    assert "UnetResBlock" in names
    assert "InstanceNorm" in names
    assert not any("Norm2d" in name or "BatchNorm" in name for name in names)
    assert len(network.network.downsamples) + 2 == 6
    network.train()
    assert network(torch.randn(1, 1, 64, 64)).shape == (1, 4, 64, 64)
