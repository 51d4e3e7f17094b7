"""The two views of BWCR: what was moved comes back to where it was."""

import pytest
import torch

from crac.training.views import View, _in_units, _make_transform, draw_views, make_view

SIZES = [(64, 96), (5, 64, 48)]


def smooth_images(size: tuple[int, ...], batch: int = 8) -> torch.Tensor:
    axes = [torch.linspace(0, 3, side) for side in size]
    field = sum(torch.sin(axis + offset) for offset, axis in enumerate(torch.meshgrid(*axes, indexing="ij")))
    return torch.stack([(field + shift).sin() / 4 + 0.5 for shift in torch.arange(batch) / 3]).unsqueeze(1)


def first_view(images: torch.Tensor, seed: int) -> tuple[View, torch.Tensor]:
    numbers, noise = draw_views(images, torch.Generator().manual_seed(seed))
    return make_view(images, numbers[0], noise[0])


@pytest.mark.parametrize("size", SIZES)
def test_round_trip_returns_every_seen_pixel(size: tuple[int, ...]) -> None:
    images = smooth_images(size)
    view, _ = first_view(images, 3)
    moved = view.apply(images)
    back, seen = view.invert(moved)
    assert (moved - images).abs().amax(dim=tuple(range(1, images.ndim))).median() > 0.05  # most did move
    assert 0.4 < seen.float().mean() < 1
    # Near the rim of the view interpolation mixes with the zeros outside; a pixel inside it is exact to 2nd order.
    inner = torch.nn.functional.avg_pool2d(seen.float().flatten(0, -3).unsqueeze(1), 5, 1, 2, count_include_pad=False)
    inner = (inner.view(seen.shape) > 0.999) & (view.invert(view.apply(torch.ones_like(images)))[0].squeeze(1) > 0.999)
    assert (back - images).squeeze(1)[inner].abs().max() < 0.01


def test_labels_move_with_the_images() -> None:
    labels = torch.zeros(6, 64, 96, dtype=torch.int64)
    labels[:, 20:40, 30:60] = 3
    view, _ = first_view(labels.unsqueeze(1).float(), 0)
    moved = view.apply_labels(labels)
    assert set(moved.unique().tolist()) == {0, 3}
    as_image = view.apply((labels == 3).float().unsqueeze(1)).squeeze(1)
    assert ((as_image > 0.5) == (moved == 3)).float().mean() > 0.99


def pixel_matrices(view: View) -> tuple[torch.Tensor, torch.Tensor]:
    """Both transforms of a view of 2×2 pixels, whose units are pixels."""
    last = torch.tensor([0.0, 0, 1]).expand(len(view.forward), 1, 3)
    return torch.cat([view.forward, last], 1), torch.cat([view.backward, last], 1)


def test_transforms_stay_within_the_stated_ranges() -> None:
    numbers, _ = draw_views(torch.zeros(4000, 1, 2, 2), torch.Generator().manual_seed(0))
    matrix, inverse = pixel_matrices(_make_transform(numbers[0, :5], 2, 2))
    assert torch.allclose(matrix @ inverse, torch.eye(3).expand_as(matrix), atol=1e-5)
    scale = torch.linalg.det(matrix[:, :2, :2]).sqrt()
    assert 0.7499 < scale.min() < 0.76
    assert 1.24 < scale.max() < 1.2501
    assert 9.9 < matrix[:, :2, 2].abs().max() <= 10
    identity = (matrix - torch.eye(3)).abs().amax((1, 2)) < 1e-6
    assert 0.01 < identity.float().mean() < 0.06  # five independent draws of one half: 1 in 32


def test_transform_shears_then_turns_then_scales_then_shifts() -> None:
    numbers, _ = draw_views(torch.zeros(50, 1, 2, 2), torch.Generator().manual_seed(1))
    numbers[0, :5, 0] = 0  # every property changes
    amounts = numbers[0, :5, 1] * 2 - 1
    angle, shear = torch.deg2rad(20 * amounts[0]), torch.deg2rad(5 * amounts[1]).tan()
    scale, x, y, zero, one = 1 + amounts[2] / 4, 10 * amounts[3], 10 * amounts[4], torch.zeros(50), torch.ones(50)
    slant = torch.stack([one, shear, zero, zero, one, zero, zero, zero, one], -1).view(-1, 3, 3)
    turn = torch.stack([angle.cos(), -angle.sin(), zero, angle.sin(), angle.cos(), zero, zero, zero, one], -1)
    rest = torch.stack([scale, zero, x, zero, scale, y, zero, zero, one], -1).view(-1, 3, 3)
    matrix, _ = pixel_matrices(_make_transform(numbers[0, :5], 2, 2))
    assert torch.allclose(matrix, rest @ turn.view(-1, 3, 3) @ slant, atol=1e-5)


def test_rotation_keeps_lengths_on_oblong_images() -> None:
    """A quarter turn of pixel coordinates must not squeeze an image twice as wide as high."""
    zero, one = torch.zeros(1), torch.ones(1)
    plane = _in_units(zero, -one, one, zero, zero, zero, 50, 100)
    corner = plane @ torch.tensor([0.5, 0.0, 1.0])  # 25 pixels right of the centre
    assert torch.allclose(corner[0] * torch.tensor([50.0, 25.0]), torch.tensor([0.0, 25.0]))


@pytest.mark.parametrize("size", SIZES)
def test_sampling_agrees_with_torch(size: tuple[int, ...]) -> None:
    images = torch.rand(3, 2, *size)
    view, _ = first_view(images, 2)
    matrix = torch.eye(len(size) + 1).repeat(3, 1, 1)
    matrix[:, :2, :2], matrix[:, :2, -1] = view.forward[..., :2], view.forward[..., 2]
    grid = torch.nn.functional.affine_grid(matrix[:, : len(size)], list(images.shape), align_corners=False)
    expected = torch.nn.functional.grid_sample(images, grid, align_corners=False)
    assert torch.allclose(view.apply(images), expected, atol=1e-4)


def test_same_seed_same_views() -> None:
    images = smooth_images((32, 32))
    first, second = (first_view(images, 5)[1] for _ in range(2))
    assert torch.equal(first, second)
    assert not torch.equal(first, first_view(images, 6)[1])
