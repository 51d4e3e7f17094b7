"""Random images through preparation, prediction and evaluation, against plain numpy.

Shape, number of classes, type, memory layout, file format, spacing and orientation are drawn anew in every trial. The
network is a function of the voxel alone, so that what it says about an image can be computed without the package: scale
the stored voxels, multiply, softmax. Where nothing is resampled, the answer on the own grid must be that, in any
orientation, and so must Dice, ECE, likelihood and Brier score. Where something is, what must hold all the same is
checked.
"""

import itertools
import sys
import tempfile
from pathlib import Path

import nibabel as nib
import numpy as np
import torch
from numpy.typing import NDArray
from tests.campaigns.campaign import FailureError, main
from torch import Tensor, nn

from crac.data.recipe import Intensity, Recipe
from crac.data.sources import RawCase
from crac.data.work import RECORDS, inspect_case, prepare_case
from crac.evaluation.audit import audit
from crac.evaluation.protocol import Protocol
from crac.models.card import ModelCard
from crac.models.model import Model

DTYPES = ("uint8", "int8", "int16", "uint16", "int32", "float32", "float64")
CODES = ["".join(codes) for axes in itertools.permutations(("LR", "AP", "IS")) for codes in itertools.product(*axes)]


class Pointwise(nn.Module):
    """Logits that are a straight line of the voxel's intensity, another one for each class."""

    def __init__(self, slopes: NDArray[np.float64], offsets: NDArray[np.float64]) -> None:
        super().__init__()
        self.slopes, self.offsets = torch.tensor(slopes).float(), torch.tensor(offsets).float()

    def forward(self, images: Tensor) -> Tensor:
        shape = (1, -1, *[1] * (images.ndim - 2))
        return images[:, :1] * self.slopes.view(shape) + self.offsets.view(shape)


def trial(draw: np.random.Generator, number: int) -> str:
    """Draw an image with its label, and take it all the way."""
    torch.set_num_threads(1)
    shape = tuple(int(size) for size in draw.integers(1, 13, 3))
    classes = int(draw.integers(2, 7))
    codes = str(draw.choice(CODES))
    spacing = np.round(np.exp(draw.uniform(np.log(0.2), np.log(8), 3)), 3)
    dtype, dims, order = str(draw.choice(DTYPES)), int(draw.choice([2, 3])), str(draw.choice(["C", "F"]))
    resampled = bool(draw.random() < 0.3)
    values = draw.normal(20, 15, shape) if "u" not in dtype else draw.uniform(0, 200, shape)
    image = np.asarray(values.astype(dtype), order=order)  # type: ignore[call-overload]
    label = draw.integers(0, classes, shape).astype(np.uint8)
    affine = _affine(codes, shape, spacing, draw)
    with tempfile.TemporaryDirectory(prefix="crac-shapes-") as name:
        folder = Path(name)
        ending = str(draw.choice([".nii", ".nii.gz"]))
        kind = nib.Nifti2Image if draw.random() < 0.3 else nib.Nifti1Image
        kind(image, affine).to_filename(folder / f"image{ending}")
        nib.Nifti1Image(label, affine).to_filename(folder / "label.nii.gz")
        wanted = tuple(float(side) for side in draw.uniform(0.7, 1.5, 3) * spacing.mean()) if resampled else (None,) * 3
        recipe = Recipe(
            name="campaign",
            orientation=str(draw.choice(["stored", "canonical"])),  # type: ignore[arg-type]
            slice_axis=int(draw.integers(3)),  # type: ignore[arg-type]
            spacing=wanted,
            intensity=(Intensity(method="percentile", low=0, high=100),),
        )
        _prepared(folder, ending, recipe, label, classes, resampled)
        slopes, offsets = draw.normal(0, 3, classes), draw.normal(0, 1, classes)
        names = tuple(map(str, range(classes)))
        card = ModelCard(backbone="unet", width=1, dims=dims, patch_size=None, class_names=names, channel_names=("x",),
                         recipe=recipe)  # type: ignore[arg-type]  # fmt: skip
        model = Model(Pointwise(slopes, offsets), card, torch.device("cpu"))
        labels, probabilities = model.predict(folder / f"image{ending}")
        found = np.asarray(probabilities)
        if found.shape != (classes, *shape) or not np.isfinite(found).all() or abs(found.sum(0) - 1).max() > 1e-5:
            raise FailureError(f"probabilities of shape {found.shape}, sums {found.sum(0).min()}..{found.sum(0).max()}")
        if not np.array_equal(labels, found.argmax(0)):
            raise FailureError("labels are not the most probable classes")
        if not resampled:
            expected = _softmax(_scaled(np.asarray(nib.load(folder / f"image{ending}").dataobj)), slopes, offsets)
            np.testing.assert_allclose(found, expected, atol=2e-3)  # stored in half precision on the way
        _evaluated(folder, found, affine, label, draw)
    return f"{dims}-D, {'resampled' if resampled else 'own grid'}"


def _affine(
    codes: str, shape: tuple[int, ...], spacing: NDArray[np.float64], draw: np.random.Generator
) -> NDArray[np.float64]:
    orientation = nib.orientations.axcodes2ornt(codes)
    turn = np.linalg.inv(nib.orientations.inv_ornt_aff(orientation, shape))
    affine = np.linalg.inv(turn)
    affine[:3, :3] *= spacing
    affine[:3, 3] = draw.normal(0, 50, 3)
    angle = draw.uniform(-0.3, 0.3)  # oblique, but still closest to the same axes
    tilt = np.eye(4)
    tilt[:2, :2] = [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
    return np.asarray(tilt @ affine)


def _scaled(image: NDArray[np.float64]) -> NDArray[np.float64]:
    image = image.astype(np.float64)
    low, high = image.min(), image.max()
    return (image - low) / (high - low) if high > low else np.zeros_like(image)


def _softmax(
    image: NDArray[np.float64], slopes: NDArray[np.float64], offsets: NDArray[np.float64]
) -> NDArray[np.float64]:
    logits = np.multiply.outer(slopes, image) + offsets[:, None, None, None]
    powers = np.exp(logits - logits.max(0))
    return np.asarray(powers / powers.sum(0))


def _prepared(
    folder: Path, ending: str, recipe: Recipe, label: NDArray[np.uint8], classes: int, resampled: bool
) -> None:
    """Prepare the case as ``crac prepare`` does; without resampling nothing may be lost, whatever the axes are."""
    case = RawCase("case", "case", None, (folder / f"image{ending}",), folder / "label.nii.gz")
    values = {index: index for index in range(classes)}
    inspection = inspect_case(values, classes, 1, case)
    if inspection.problems:
        raise FailureError(str(inspection.problems))
    (folder / RECORDS).mkdir()
    record = prepare_case(folder, recipe, values, classes, (case, inspection))
    counts = tuple(int((label == index).sum()) for index in range(classes))
    if record.voxels != counts or (not resampled and record.prepared_voxels != counts):
        raise FailureError(f"{record.voxels} and {record.prepared_voxels} voxels where there are {counts}")
    stored = np.load(folder / "cases" / "case" / "label.npy")
    if stored.shape != record.prepared_shape or stored.max() >= classes:
        raise FailureError(f"a label of shape {stored.shape} up to {stored.max()}")
    if not resampled and not np.array_equal(recipe.invert(stored, record.geometry), label):
        raise FailureError("the label does not come back")


def _evaluated(
    folder: Path,
    probabilities: NDArray[np.float32],
    affine: NDArray[np.float64],
    label: NDArray[np.uint8],
    draw: np.random.Generator,
) -> None:
    """Measure the probabilities from a file, and again by loops over bins."""
    for name in ("p", "l"):
        (folder / name).mkdir()
    ambiguous = label.shape[0] == len(probabilities) or draw.random() < 0.5
    for index, one in enumerate(probabilities if ambiguous else ()):
        nib.Nifti1Image(one, affine).to_filename(folder / "p" / f"case_{index}.nii.gz")
    if not ambiguous:
        nib.Nifti1Image(np.moveaxis(probabilities, 0, 3), affine).to_filename(folder / "p" / "case.nii.gz")
    nib.Nifti1Image(label, affine).to_filename(folder / "l" / "case.nii.gz")
    evaluation = audit(folder / "p", folder / "l", Protocol.named("clinical", masks=("all",)))
    row = evaluation.rows[0]
    flat, truth = probabilities.reshape(len(probabilities), -1).astype(np.float64), label.ravel()
    flat = flat / flat.sum(0)
    confidence, hit = flat.max(0), flat.argmax(0) == truth
    part = np.clip(np.ceil(confidence * 15).astype(int) - 1, 0, 14)
    ece = sum(abs((confidence - hit)[part == index].sum()) for index in range(15)) / len(truth)
    # A probability below what its type can tell from 0 beside 1 counts as that much, as in scikit-learn's log_loss.
    chosen = np.maximum(flat[truth, np.arange(len(truth))], np.finfo(probabilities.dtype).eps)
    hot = np.eye(len(flat))[truth].T
    expected = {"ece[all]": ece, "nll[all]": -np.log(chosen).mean(), "brier[all]": ((flat - hot) ** 2).sum(0).mean()}
    for index in range(1, len(flat)):
        predicted, labelled = flat.argmax(0) == index, truth == index
        total = predicted.sum() + labelled.sum()
        expected[f"dsc.{index}"] = 2 * (predicted & labelled).sum() / total if total else np.nan
    for name, value in expected.items():
        np.testing.assert_allclose(row[name], value, atol=2e-4, rtol=1e-3, err_msg=name)


if __name__ == "__main__":
    sys.exit(main("shapes", trial, __doc__, step=100))
