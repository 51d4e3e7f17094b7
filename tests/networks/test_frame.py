"""Padding and standardisation around a network."""

import pytest
import torch

from crac.errors import InputError
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


@pytest.mark.parametrize("size", [(40, 32), (24, 72), (16, 24, 40)])
def test_images_lie_in_the_same_place_in_training_and_in_prediction(size: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    network = build_network("nnunet", 1, 3, len(size), width=2, deep_supervision=True)
    assert any(side % stride for side, stride in zip(size, network.stride, strict=True))
    network.least = size  # as those of a run whose images are so large
    image = torch.rand(2, 1, *size)
    with torch.no_grad():
        finest = network.train()(image)[0]
        torch.testing.assert_close(network.eval()(image), finest, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("shape", [(1, 1, 32, 32), (2, 32, 32), (1, 2, 8, 32, 32)])
def test_images_of_another_shape_are_refused(shape: tuple[int, ...]) -> None:
    """One channel would be stretched over two, each standardised in its own way."""
    network = build_network("unet", 2, 3, width=2)
    with pytest.raises(InputError, match=r"images must have shape \(B, 2, \*S\) with 2 spatial dimensions; got \("):
        network(torch.rand(shape))
