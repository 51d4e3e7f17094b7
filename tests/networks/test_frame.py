"""Padding and standardisation around a network."""

import torch

from crac.networks import build_network


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
