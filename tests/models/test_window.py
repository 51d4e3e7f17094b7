"""Slices in batches, a sliding window, mirrored copies: the same network over a whole volume."""

from typing import Any

import torch
from torch import Tensor, nn

from crac.models.window import sliding_window, volume_logits


def probabilities(*arguments: Any, **options: Any) -> Tensor:
    return volume_logits(*arguments, **options).softmax(0)


class Threshold(nn.Module):
    """Says "bright" where the image is above one half."""

    def forward(self, images: Tensor) -> Tensor:
        bright = 10 * (images[:, :1] - 0.5)
        return torch.cat([-bright, bright], dim=1)


def test_flips_average_over_every_mirror_image() -> None:
    class Corner(nn.Module):
        """Favours one corner of whatever it sees, so that mirroring shows."""

        def forward(self, images: Tensor) -> Tensor:
            ramp = sum(torch.linspace(0, 1, size).view(-1, *[1] * after) for after, size in
                       enumerate(reversed(images.shape[2:])))  # fmt: skip
            return torch.stack([ramp, -ramp]).expand(len(images), -1, *[-1] * (images.ndim - 2))

    for dims in (2, 3):
        image = torch.rand(1, 4, 6, 8)
        plain = probabilities(Corner(), image, dims)
        flipped = probabilities(Corner(), image, dims, flips=True)
        axes = [axis for axis in (1, 2, 3) if axis > 3 - dims]
        assert not torch.allclose(plain, plain.flip(axes))
        for axis in axes:
            torch.testing.assert_close(flipped, flipped.flip(axis))
        mirrored = [plain.flip([a for a, chosen in zip(axes, f"{n:03b}"[-dims:], strict=True) if chosen == "1"])
                    for n in range(2**dims)]  # fmt: skip
        torch.testing.assert_close(flipped, torch.stack(mirrored).mean(0))


def test_a_sliding_window_sees_every_voxel_and_memory_does_not_grow_with_slices() -> None:
    image = torch.rand(1, 11, 30, 22)
    whole = probabilities(Threshold(), image, 3)
    torch.testing.assert_close(probabilities(sliding_window(Threshold(), (4, 16, 8), 3), image, 3), whole)
    seen: list[int] = []

    class Counting(Threshold):
        def forward(self, images: Tensor) -> Tensor:
            seen.append(len(images))
            return super().forward(images)

    torch.testing.assert_close(probabilities(Counting(), image, 2, batch_size=4), whole)
    assert seen == [4, 4, 3]
