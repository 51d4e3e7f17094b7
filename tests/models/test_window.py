"""Slices in batches, a sliding window, mirrored copies: the same network over a whole volume."""

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch
from monai.data.utils import compute_importance_map
from monai.inferers import SlidingWindowInferer
from torch import Tensor, nn

from crac.models import planes
from crac.models.window import gaussian, logit_slabs, sliding_window


def probabilities(*arguments: Any, **options: Any) -> Tensor:
    return torch.cat(list(logit_slabs(*arguments, **options)), 1).softmax(0)


class Threshold(nn.Module):
    """Says "bright" where the image is above one half."""

    def forward(self, images: Tensor) -> Tensor:
        bright = 10 * (images[:, :1] - 0.5)
        return torch.cat([-bright, bright], dim=1)


def test_mirroring_averages_over_every_mirror_image() -> None:
    class Corner(nn.Module):
        """Favours one corner of whatever it sees, so that mirroring shows."""

        def forward(self, images: Tensor) -> Tensor:
            ramp = sum(torch.linspace(0, 1, size).view(-1, *[1] * after) for after, size in
                       enumerate(reversed(images.shape[2:])))  # fmt: skip
            return torch.stack([ramp, -ramp]).expand(len(images), -1, *[-1] * (images.ndim - 2))

    for dims in (2, 3):
        image = torch.rand(1, 4, 6, 8)
        plain = probabilities(Corner(), image, dims)
        flipped = probabilities(Corner(), image, dims, mirror=True)
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
    torch.testing.assert_close(probabilities(Threshold(), image, 3, (4, 16, 8), 3), whole)
    seen: list[int] = []

    class Counting(Threshold):
        def forward(self, images: Tensor) -> Tensor:
            seen.append(len(images))
            return super().forward(images)

    torch.testing.assert_close(probabilities(Counting(), image, 2, batch_size=4), whole)
    assert seen == [4, 4, 3]


class Local(nn.Module):
    """Depends on position in the window and on neighbours, so that every choice of windows shows."""

    def __init__(self, dims: int = 3) -> None:
        super().__init__()
        self.layer = (nn.Conv2d if dims == 2 else nn.Conv3d)(1, 3, 3, padding=1)

    def forward(self, images: Tensor) -> Tensor:
        ramp = torch.linspace(0, 1, images.shape[-1]) + torch.linspace(0, 2, images.shape[-2])[:, None]
        answer: Tensor = 3 * self.layer(images) + ramp
        return answer


@pytest.mark.parametrize("size", [(11, 30, 22), (4, 16, 8), (3, 16, 30), (20, 9, 5), (1, 1, 1), (64, 17, 9)])
@pytest.mark.parametrize("patch", [(4, 16, 8), (5, 7, 9), (1, 9, 8)])
@torch.inference_mode()
def test_windows_are_those_of_monai(size: tuple[int, ...], patch: tuple[int, ...]) -> None:
    network, image = Local().eval(), torch.rand(1, *size)
    expected = SlidingWindowInferer(patch, sw_batch_size=3, overlap=0.5, mode="gaussian")(image[None], network)
    slabs = list(logit_slabs(network, image, 3, patch, 3))
    torch.testing.assert_close(torch.cat(slabs, 1), expected[0], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(sliding_window(network, patch)(image[None]), expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(gaussian(patch), compute_importance_map(patch, mode="gaussian"))
    assert all(slab.shape[1] <= patch[0] for slab in slabs)  # no more than a window's depth at a time


@pytest.mark.parametrize(("dims", "patch"), [(2, None), (3, None), (3, (4, 6, 5))])
@torch.inference_mode()
def test_mirrored_is_the_mean_over_the_mirrored_images(
    dims: int, patch: tuple[int, ...] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    network, image = Local(dims).eval(), torch.rand(1, 9, 10, 11)
    axes = (1, 2, 3)[3 - dims :]
    every = [chosen for count in range(dims + 1) for chosen in itertools.combinations(axes, count)]
    answers = [probabilities(network, image.flip(chosen), dims, patch, 4).flip(chosen) for chosen in every]
    assert len(answers) == 2**dims
    assert (answers[0] - answers[1]).abs().max() > 0.01
    mirrored = probabilities(network, image, dims, patch, 4, mirror=True)
    torch.testing.assert_close(mirrored, torch.stack(answers).double().mean(0).float(), atol=1e-6, rtol=1e-6)
    monkeypatch.setattr(planes, "CPU_MOST", 0)
    monkeypatch.setattr(planes, "SLAB", 400)
    slabs = list(logit_slabs(network, image, dims, patch, 4, True, folder=tmp_path))
    torch.testing.assert_close(torch.cat(slabs, 1).softmax(0), mirrored, atol=1e-6, rtol=0)
    assert (len(slabs) > 1) == (dims == 2 or patch is not None)


def test_progress_counts_what_the_network_is_called_for() -> None:
    seen: list[tuple[str, int]] = []

    def track(items: Any, description: str, total: int) -> Any:
        seen.append((description, total))
        yield from items

    for dims, patch in ((2, None), (3, (4, 6, 5))):
        list(logit_slabs(Local(dims), torch.rand(1, 9, 10, 11), dims, patch, 4, track=track))
    # Windows begin at 0, 2, 4, 5; at 0, 3, 4; at 0, 2, 4, 6: in each depth 12 of them, 4 at a time.
    assert seen == [("slices", 3), ("windows", 12)]
