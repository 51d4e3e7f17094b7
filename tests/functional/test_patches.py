"""Sliding windows over label maps."""

import pytest
import torch

from crac.functional import patches


@pytest.mark.parametrize("shape", [(2, 5, 7), (1, 4, 5, 6)])
@pytest.mark.parametrize("radius", [1, 2])
def test_running_reduces_every_patch(shape: tuple[int, ...], radius: int) -> None:
    dims, side = len(shape) - 1, 2 * radius + 1
    image = torch.randint(9, shape)
    patch = patches.pad(image, dims, radius, "replicate")
    for axis in range(1, dims + 1):
        patch = patch.unfold(axis, side, 1)
    padded = patches.pad(image, dims, radius, "replicate")
    found = patches.running(torch.maximum, padded, dims, radius)
    torch.testing.assert_close(found, patch.flatten(dims + 1).max(-1).values)
    assert (found >= image).all()
    assert (found > image).any()


@pytest.mark.parametrize("rows", [3, 10, 11])
def test_strips_see_their_neighbours(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patches, "STRIP", 4)
    image, seen = torch.randint(100, (2, rows, 5)), []

    def largest(part: torch.Tensor) -> torch.Tensor:
        seen.append(part.shape[-2])
        return patches.running(torch.maximum, patches.pad(part, 2, 1, "background"), 2, 1)

    found = patches.in_strips(largest, image, reach=1)
    assert (len(seen) > 1) == (rows > 4)
    assert torch.equal(found, largest(image))


def test_ignored_and_unknown_labels_belong_to_no_class() -> None:
    labels = torch.tensor([[[0, 1, 2, 7, 1]]])
    hot = patches.one_hot(labels, 3, ignore_index=1)
    assert hot[0, :, 0].long().tolist() == [[1, 0, 0, 0, 0], [0, 0, 0, 0, 0], [0, 0, 1, 0, 0]]
    narrowed, ignored = patches.narrow(labels, 3, 7)
    assert (narrowed.dtype, narrowed.tolist(), ignored) == (torch.uint8, [[[0, 1, 2, 255, 1]]], 255)
