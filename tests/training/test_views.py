"""The two views of BWCR: what was moved comes back to where it was."""

import pytest
import torch

from crac.training.views import _draw_matrix, _in_plane, draw_view

SIZES = [(64, 96), (5, 64, 48)]


def smooth_images(size: tuple[int, ...], batch: int = 8) -> torch.Tensor:
    axes = [torch.linspace(0, 3, side) for side in size]
    field = sum(torch.sin(axis + offset) for offset, axis in enumerate(torch.meshgrid(*axes, indexing="ij")))
    return torch.stack([(field + shift).sin() / 4 + 0.5 for shift in torch.arange(batch) / 3]).unsqueeze(1)


@pytest.mark.parametrize("size", SIZES)
def test_round_trip_returns_every_seen_pixel(size: tuple[int, ...]) -> None:
    images = smooth_images(size)
    view, _ = draw_view(images, torch.Generator().manual_seed(3))
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
    view, _ = draw_view(labels.unsqueeze(1).float(), torch.Generator().manual_seed(0))
    moved = view.apply_labels(labels)
    assert set(moved.unique().tolist()) == {0, 3}
    as_image = view.apply((labels == 3).float().unsqueeze(1)).squeeze(1)
    assert ((as_image > 0.5) == (moved == 3)).float().mean() > 0.99


def test_transforms_stay_within_the_stated_ranges() -> None:
    matrix = _draw_matrix(4000, torch.Generator().manual_seed(0))
    scale = torch.linalg.det(matrix[:, :2, :2]).sqrt()
    assert 0.7499 < scale.min() < 0.76
    assert 1.24 < scale.max() < 1.2501
    assert 9.9 < matrix[:, :2, 2].abs().max() <= 10
    identity = (matrix - torch.eye(3)).abs().amax((1, 2)) < 1e-6
    assert 0.01 < identity.float().mean() < 0.06  # five independent draws of one half: 1 in 32


def test_rotation_keeps_lengths_on_oblong_images() -> None:
    """A quarter turn of pixel coordinates must not squeeze an image twice as wide as high."""
    turn = torch.tensor([[[0.0, -1, 0], [1, 0, 0], [0, 0, 1]]])
    plane = _in_plane(turn, [50, 100])
    corner = plane @ torch.tensor([0.5, 0.0, 1.0])  # 25 pixels right of the centre
    assert torch.allclose(corner[0, :2] * torch.tensor([50.0, 25.0]), torch.tensor([0.0, 25.0]))


def test_same_seed_same_views() -> None:
    images = smooth_images((32, 32))
    first, second = (draw_view(images, torch.Generator().manual_seed(5))[1] for _ in range(2))
    assert torch.equal(first, second)
    assert not torch.equal(first, draw_view(images, torch.Generator().manual_seed(6))[1])
