"""Augmentation moves image and label together, and does nothing when told to do nothing."""

import pytest
import torch
from pydantic import ValidationError
from scipy import ndimage

from crac.data import Augmentation

NOTHING = Augmentation(flip=0, rotation=0, scale=0, intensity=0)


def batch(*shape: int) -> tuple[torch.Tensor, torch.Tensor]:
    labels = torch.zeros(4, *shape, dtype=torch.int64)
    labels[..., shape[-2] // 4 : shape[-2] // 2, shape[-1] // 3 : shape[-1] // 2] = 1
    return labels.unsqueeze(1).float(), labels


@pytest.mark.parametrize("shape", [(40, 60), (5, 40, 60)])
def test_identity(shape: tuple[int, ...]) -> None:
    images, labels = torch.rand(4, 2, *shape), batch(*shape)[1]
    found, found_labels = NOTHING(images, labels, seed=1)
    torch.testing.assert_close(found, images, atol=1e-5, rtol=0)
    assert torch.equal(found_labels, labels)


@pytest.mark.parametrize("shape", [(40, 60), (5, 40, 60)])
def test_image_and_label_move_together(shape: tuple[int, ...]) -> None:
    images, labels = batch(*shape)
    found, found_labels = Augmentation(intensity=0)(images, labels, seed=2)
    assert (found_labels != labels).any()
    # The image is the label's indicator: interpolated, it stays on its own side of a half but for the very edge.
    assert ((found[:, 0] > 0.5) == (found_labels == 1)).float().mean() > 0.98


def test_flips_are_exact() -> None:
    images, labels = torch.rand(4, 1, 12, 18), torch.randint(0, 3, (4, 12, 18))
    found, found_labels = Augmentation(flip=1, rotation=0, scale=0, intensity=0)(images, labels, seed=0)
    torch.testing.assert_close(found, images.flip(-1, -2), atol=1e-5, rtol=0)
    assert torch.equal(found_labels, labels.flip(-1, -2))


def test_rotation_keeps_shapes_on_oblong_slices() -> None:
    rows, columns = torch.meshgrid(torch.arange(64) - 31.5, torch.arange(128) - 63.5, indexing="ij")
    bar = ((rows.abs() < 4) & (columns.abs() < 24)).float()[None, None].repeat(8, 1, 1, 1)
    turned, _ = Augmentation(flip=0, rotation=90, scale=0, intensity=0)(bar, bar[:, 0].long(), seed=3)
    for image in turned[:, 0]:
        # Area and second moments do not change under rotation; stretching by the aspect would change them.
        assert float(image.sum()) == pytest.approx(float(bar[0].sum()), rel=0.02)
        covariance = torch.cov(torch.nonzero(image > 0.5).T.float())
        lengths = torch.linalg.eigvalsh(covariance).sqrt()
        assert float(lengths[1] / lengths[0]) == pytest.approx(6, rel=0.1)
    angles = {round(float(ndimage.center_of_mass(image[0, :32].numpy())[1])) for image in turned}
    assert len(angles) > 1


def test_scale_and_intensity_stay_in_range() -> None:
    images, labels = batch(64, 64)
    _, scaled = Augmentation(flip=0, rotation=0, scale=0.2, intensity=0)(images, labels, seed=4)
    ratios = scaled.sum((1, 2)) / labels.sum((1, 2))
    assert (ratios > 0.8**2 - 0.1).all()
    assert (ratios < 1.2**2 + 0.1).all()
    assert ratios.std() > 0.01
    brighter, same = Augmentation(flip=0, rotation=0, scale=0, intensity=0.1)(
        torch.full_like(images, 0.5), labels, seed=5
    )
    assert torch.equal(same, labels)
    assert (brighter - 0.5).abs().max() <= 0.15 + 1e-6
    assert brighter.flatten(1).mean(1).std() > 0.01


def test_deterministic_by_seed() -> None:
    images, labels = torch.rand(4, 1, 32, 32), batch(32, 32)[1]
    augment = Augmentation()
    first, second, other = (augment(images, labels, seed)[0] for seed in (7, 7, 8))
    assert torch.equal(first, second)
    assert not torch.equal(first, other)


@pytest.mark.parametrize("options", [{"flip": 2}, {"rotation": -1}, {"scale": 1}, {"blur": 1}])
def test_bad_options(options: dict) -> None:
    with pytest.raises(ValidationError):
        Augmentation(**options)
