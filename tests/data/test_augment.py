"""Augmentation moves image and label together, does nothing when told to do nothing, and needs nothing but numbers."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from monai.networks.layers import AffineTransform
from pydantic import ValidationError
from scipy import ndimage, stats
from tests.training.watched import WAITING, Watched

import crac.data.augment as augment_module
from crac.data import Augmentation
from crac.data.augment import NUMBERS, _normal, resample
from crac.errors import InputError

SHAPES = [(40, 60), (12, 40, 60)]


def drawn(batch: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(batch, NUMBERS, generator=torch.Generator().manual_seed(seed))


def box(*shape: int, batch: int = 4) -> tuple[torch.Tensor, torch.Tensor]:
    labels = torch.zeros(batch, *shape, dtype=torch.int64)
    labels[(slice(None), *(slice(side // 4, side // 2 + 2) for side in shape))] = 1
    return labels.unsqueeze(1).float(), labels


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    "augment", [Augmentation(), Augmentation.named("strong").model_copy(update={"moves": 0, "changes": 0})]
)
def test_identity(augment: Augmentation, shape: tuple[int, ...]) -> None:
    """To the last bit: what is not changed is not interpolated either."""
    images, labels = torch.rand(4, 2, *shape), box(*shape)[1]
    found, found_labels = augment(images, labels, drawn(4))
    assert torch.equal(found, images)
    assert torch.equal(found_labels, labels)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("strength", ["light", "strong"])
def test_image_and_label_move_together(strength: str, shape: tuple[int, ...]) -> None:
    images, labels = box(*shape, batch=12)
    labels[:, ..., :3, :3] = 255  # to be ignored
    images[:, 0, ..., :3, :3] = 0
    only_moves = Augmentation.named(strength, mirror=True).model_copy(update={"changes": 0})
    found, found_labels = only_moves(images, labels, drawn(12, 2))
    assert (found_labels != labels).flatten(1).any(1).sum() > 6
    assert set(found_labels.unique().tolist()) == {0, 1, 255}
    # The image is the label's indicator: interpolated, it stays on its own side of a half but for the very edge.
    assert ((found[:, 0] > 0.5) == (found_labels == 1)).float().mean() > 0.98
    changed, same = Augmentation.named(strength).model_copy(update={"moves": 0})(images, labels, drawn(12, 3))
    assert torch.equal(same, labels)
    assert not torch.equal(changed, images)


@given(st.integers(0, 7), st.sampled_from([(6, 9), (4, 6, 9)]))
def test_mirroring_is_exact(axes: int, shape: tuple[int, ...]) -> None:
    images, labels = torch.rand(1, 2, *shape), torch.randint(0, 3, (1, *shape))
    numbers = torch.full((1, NUMBERS), 0.9)
    chosen = [-1 - axis for axis in range(len(shape)) if axes >> axis & 1]
    numbers[0, [-1 - axis for axis in chosen]] = 0.1
    found, found_labels = Augmentation(flip=0.5)(images, labels, numbers)
    assert torch.equal(found, images.flip(chosen) if chosen else images)
    assert torch.equal(found_labels, labels.flip(chosen) if chosen else labels)


def test_rotation_keeps_shapes_on_oblong_slices() -> None:
    rows, columns = torch.meshgrid(torch.arange(64) - 31.5, torch.arange(128) - 63.5, indexing="ij")
    bar = ((rows.abs() < 4) & (columns.abs() < 24)).float()[None, None].repeat(8, 1, 1, 1)
    turned, _ = Augmentation(rotation=90)(bar, bar[:, 0].long(), drawn(8, 3))
    for image in turned[:, 0]:
        # Area and second moments do not change under rotation; stretching by the aspect would change them.
        assert float(image.sum()) == pytest.approx(float(bar[0].sum()), rel=0.02)
        lengths = torch.linalg.eigvalsh(torch.cov(torch.nonzero(image > 0.5).T.float())).sqrt()
        assert float(lengths[1] / lengths[0]) == pytest.approx(6, rel=0.1)
    angles = {round(float(ndimage.center_of_mass(image[0, :32].numpy())[1])) for image in turned}
    assert len(angles) > 1


def test_volumes_turn_in_millimetres_and_only_in_their_slices_if_these_lie_far_apart() -> None:
    places = torch.meshgrid(*(torch.arange(side) - (side - 1) / 2 for side in (24, 48, 48)), indexing="ij")
    ball = (places[0] * 2) ** 2 + places[1] ** 2 + places[2] ** 2 < 15**2  # round in millimetres
    images = ball.float()[None, None].repeat(4, 1, 1, 1, 1)
    images[:, :, :, 24:] = 0  # half of it, to see it turn
    labels = images[:, 0].long()
    turned, _ = Augmentation(rotation=90, spacing=(2, 1, 1))(images, labels, drawn(4, 1))
    for image in turned[:, 0]:
        kept = torch.nonzero(image > 0.5).float() * torch.tensor([2.0, 1, 1])
        lengths = torch.linalg.eigvalsh(torch.cov(kept.T))
        expected = torch.linalg.eigvalsh(torch.cov((torch.nonzero(labels[0]).float() * torch.tensor([2.0, 1, 1])).T))
        torch.testing.assert_close(lengths, expected, rtol=0.1, atol=1)
    assert turned[0, 0, :12].sum() != pytest.approx(float(turned[0, 0, 12:].sum()), rel=0.05)
    flat, _ = Augmentation(rotation=90, spacing=(3, 1, 1))(images, labels, drawn(4, 1))
    torch.testing.assert_close(flat.sum((3, 4)), images.sum((3, 4)), rtol=0.02, atol=1)  # slice by slice


@pytest.mark.parametrize("dims", [2, 3])
def test_resampling_agrees_with_scipy_and_monai(dims: int) -> None:
    shape = (11, 9, 14)[-dims:]
    image = torch.rand(1, 1, *shape, dtype=torch.float64)
    matrix = torch.eye(dims, dims + 1, dtype=torch.float64) + torch.rand(dims, dims + 1, dtype=torch.float64) / 6
    found = resample(image, matrix[None], "bilinear")
    # Coordinates (x, y[, z]) in -1..1 as pixels (.., row, column), for scipy.
    half = np.array(shape) / 2
    linear, offset = matrix[:, :dims].numpy()[::-1, ::-1], matrix[:, dims].numpy()[::-1]
    pixels = linear * half[:, None] / half[None]
    start = half * (offset + 1) - 0.5 - pixels @ (half - 0.5)
    padded = np.pad(image[0, 0].numpy(), 1)  # scipy interpolates towards the outside only where there is a voxel
    expected = ndimage.affine_transform(padded, pixels, start + 1 - pixels @ np.ones(dims), padded.shape, order=1)
    np.testing.assert_allclose(found[0, 0], expected[tuple([slice(1, -1)] * dims)], atol=1e-9)
    own = AffineTransform(normalized=True, align_corners=False, reverse_indexing=False)
    square = torch.eye(dims + 1, dtype=torch.float64)
    square[:dims] = matrix
    torch.testing.assert_close(own(image, square[None]), found)


def test_scale_and_shift_stay_in_range() -> None:
    images, labels = box(64, 64, batch=40)
    _, scaled = Augmentation(scale=0.2)(images, labels, drawn(40, 4))
    ratios = scaled.sum((1, 2)) / labels.sum((1, 2))
    assert 0.8**2 - 0.1 < ratios.min() < 0.75
    assert 1.3 < ratios.max() < 1.2**2 + 0.1
    _, shifted = Augmentation(shift=0.1)(images, labels, drawn(40, 5))
    moves = torch.stack(
        [torch.nonzero(one).float().mean(0) - torch.nonzero(labels[0]).float().mean(0) for one in shifted]
    )
    assert 5 < moves.abs().max() <= 6.5
    assert (moves[:, 0] - moves[:, 1]).abs().max() > 2


def test_intensities_do_what_they_say() -> None:
    flat, labels = torch.full((60, 1, 16, 16), 0.5), torch.zeros(60, 16, 16, dtype=torch.int64)
    gamma = Augmentation(gamma=2.0)(flat, labels, drawn(60))[0]
    assert 0.5**2 - 1e-6 <= gamma.min() < 0.3
    assert 0.65 < gamma.max() <= 0.5**0.5 + 1e-6
    brighter = Augmentation(gain=0.1, brightness=0.1)(flat, labels, drawn(60))[0]
    assert 0.1 < (brighter - 0.5).abs().max() <= 0.15 + 1e-6
    images = torch.rand(60, 1, 16, 16)
    contrast = Augmentation(contrast=0.5)(images, labels, drawn(60))[0]
    torch.testing.assert_close(contrast.mean((2, 3)), images.mean((2, 3)))
    ratio = contrast.std((2, 3)) / images.std((2, 3))
    assert 0.5 <= ratio.min() < 0.6
    assert 1.4 < ratio.max() <= 1.5001
    half = Augmentation(gain=0.1, brightness=0.1, changes=0.5)(flat, labels, drawn(60))[0]
    assert 5 < (half == 0.5).flatten(1).all(1).sum() < 30


@pytest.mark.parametrize("shape", [(24, 20), (8, 24, 20)])
def test_blur_agrees_with_scipy(shape: tuple[int, ...]) -> None:
    images, labels = torch.rand(3, 1, *shape, dtype=torch.float64), torch.zeros(3, *shape, dtype=torch.int64)
    numbers = drawn(3).double()
    found = Augmentation(blur=1.5)(images, labels, numbers)[0]
    for image, blurred, number in zip(images[:, 0], found[:, 0], numbers[:, 18], strict=True):
        expected = ndimage.gaussian_filter(image.numpy(), 1.5 * float(number), radius=5, mode="nearest")
        np.testing.assert_allclose(blurred, expected, atol=1e-6)


def test_low_resolution_is_linear_between_the_voxels_of_a_coarser_grid() -> None:
    images, numbers = torch.rand(1, 1, 12, 12), drawn(1)
    numbers[:, 20] = 1.0  # every second voxel
    found = Augmentation(low_resolution=3)(images, torch.zeros(1, 12, 12, dtype=torch.int64), numbers)[0][0, 0]
    centres = images[0, 0, 1::3, 1::3]
    torch.testing.assert_close(found[1::3, 1::3], centres)
    torch.testing.assert_close(found[1, 2], centres[0, 0] * 2 / 3 + centres[0, 1] / 3)


def test_noise_is_normal_and_differs_between_images_and_places() -> None:
    images = torch.zeros(3, 2, 64, 64)
    noise = _normal(torch.tensor([0.1, 0.1, 0.2]), images)
    assert torch.equal(noise[0], noise[1])
    assert abs(float(torch.corrcoef(noise[[0, 2]].flatten(1))[0, 1])) < 0.05
    assert stats.kstest(noise[[0, 2]].flatten().numpy(), "norm").pvalue > 0.01
    neighbours = torch.stack([noise[0, :, :, 1:].flatten(), noise[0, :, :, :-1].flatten()])
    assert abs(float(torch.corrcoef(neighbours)[0, 1])) < 0.05
    worst = _normal(torch.linspace(0, 1, 50), torch.zeros(50, 1, 256, 256))
    assert worst.isfinite().all()
    assert worst.std() == pytest.approx(1, abs=0.002)


@pytest.mark.parametrize("shape", SHAPES)
def test_each_image_depends_on_its_own_numbers_alone(shape: tuple[int, ...]) -> None:
    images, labels, numbers = torch.rand(5, 1, *shape), torch.randint(0, 3, (5, *shape)), drawn(5, 7)
    augment = Augmentation.named("strong", mirror=True)
    together = augment(images, labels, numbers)
    for row in range(5):
        part = slice(row, row + 1)
        alone = augment(images[part], labels[part], numbers[part])
        assert all(torch.equal(one, other[part]) for one, other in zip(alone, together, strict=True))
    assert not torch.equal(augment(images, labels, drawn(5, 8))[0], together[0])


@pytest.mark.parametrize("shape", SHAPES)
def test_what_a_cpu_leaves_out_changes_nothing(shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    images, labels, numbers = torch.rand(9, 2, *shape) - 0.1, torch.randint(0, 3, (9, *shape)), drawn(9)
    augment = Augmentation.named("strong", mirror=True)
    some = augment(images, labels, numbers)
    monkeypatch.setattr(augment_module, "_may_look", lambda _: False)
    assert all(map(torch.equal, some, augment(images, labels, numbers)))


@pytest.mark.parametrize("shape", SHAPES)
def test_nothing_is_read_from_the_device(shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(augment_module, "_may_look", lambda _: False)
    images, labels, numbers = torch.rand(3, 1, *shape), torch.randint(0, 3, (3, *shape)), drawn(3)
    with Watched() as watched:
        Augmentation.named("strong", mirror=True)(images, labels, numbers)
    assert {"grid_sampler_2d", "grid_sampler_3d", "erfinv"} & watched.seen
    assert not watched.seen & WAITING


@pytest.mark.parametrize("options", [{"flip": 2}, {"rotation": -1}, {"scale": 1}, {"sharpen": 1}, {"gamma": math.nan}])
def test_bad_options(options: dict) -> None:
    with pytest.raises(ValidationError):
        Augmentation(**options)
    with pytest.raises(InputError, match="augment must be one of light, strong; got 'none'"):
        Augmentation.named("none")  # type: ignore[arg-type]
