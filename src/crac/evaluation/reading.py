"""One case in memory: its probabilities on the grid of its labels."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
from nibabel.affines import voxel_sizes
from numpy.typing import NDArray

from crac.data.nifti import Volume, read_image, read_label, same_grid
from crac.errors import InputError
from crac.evaluation import nnunet
from crac.evaluation.pairing import FilePair
from crac.metrics.counts import RANGE_TOLERANCE, SUM_TOLERANCE


class Loaded(NamedTuple):
    """A case read.

    Attributes:
        probabilities: ``(K, X, Y, Z)``.
        labels: ``(X, Y, Z)``.
        spacing: Millimetres between voxels.
    """

    probabilities: NDArray[np.float32]
    labels: NDArray[np.int32]
    spacing: tuple[float, ...]


class Inspected(NamedTuple):
    """What the check of a case found: its number of classes, None if it could not be read, and its defects."""

    num_classes: int | None
    problems: list[str]


def load(case: FilePair) -> Loaded:
    """Read a case.

    Raises:
        InputError: A file cannot be read, or the two do not lie on the same grid.
    """
    label = read_label(case.label)
    if case.probabilities[0].suffix == ".npz":
        segmentation = None if case.segmentation is None else read_label(case.segmentation)
        if case.segmentation is not None and segmentation is not None:
            _same(case.segmentation, label, segmentation)
        probabilities = nnunet.read_probabilities(case.probabilities[0], label, segmentation, case.orientation)
    elif len(case.probabilities) > 1:
        probabilities = np.concatenate([_one_class(path, label) for path in case.probabilities])
    else:
        probabilities = _all_classes(case.probabilities[0], label)
    if len(probabilities) == 1:
        probabilities = _with_background(case.probabilities[0], probabilities)
    return Loaded(probabilities, label.array, tuple(float(size) for size in voxel_sizes(label.affine)))


def inspect(case: FilePair) -> Inspected:
    """Every defect of a case, one sentence each."""
    try:
        probabilities, labels, _ = load(case)
    except InputError as error:
        return Inspected(None, [str(error)])
    name, problems = case.probabilities[0], []
    num_classes = len(probabilities)
    if case.image is not None:
        try:
            read_on_grid(case.image, read_label(case.label))
        except InputError as error:
            problems.append(str(error))
    if case.ignore_index is not None:
        labels = np.where(labels == case.ignore_index, 0, labels)
    if not 0 <= labels.min() <= labels.max() < num_classes:
        problems.append(
            f"{case.label}: labels must lie in 0..{num_classes - 1}, the classes of {name.name}; "
            f"got {labels.min()}..{labels.max()} (ignore_index names the label of voxels that nobody has labelled)"
        )
    defect = defect_of(probabilities)
    return Inspected(num_classes, problems if defect is None else [*problems, f"{name}: {defect}"])


def read_on_grid(path: Path, label: Volume) -> Volume:
    """Read an image that lies on the grid of a label map, to look at."""
    image = read_image(path)
    _same(path, label, image)
    return image


def defect_of(probabilities: NDArray[np.float32]) -> str | None:
    """Why ``(K, X, Y, Z)`` numbers are no probabilities, or None if they are."""
    if not np.isfinite(probabilities).all():
        return "probabilities must be finite; got NaN or infinity"
    if probabilities.min() < -RANGE_TOLERANCE:
        return f"probabilities must not be negative; got {probabilities.min():.4g}"
    total = probabilities.sum(axis=0)
    worst = total.flat[np.abs(total - 1).argmax()]
    if not abs(worst - 1) < SUM_TOLERANCE:
        return f"probabilities must sum to 1 over the classes; a voxel sums to {worst:.4g}"
    return None


def _with_background(path: Path, foreground: NDArray[np.float32]) -> NDArray[np.float32]:
    """The probabilities of a binary task, from a file with those of the foreground alone."""
    low, high = float(foreground.min()), float(foreground.max())
    if not (low >= -RANGE_TOLERANCE and high <= 1 + RANGE_TOLERANCE):
        raise InputError(f"{path}: a single map is the foreground's probability, which lies in 0..1; got {low}..{high}")
    if high == 1 and np.isin(foreground, (0, 1)).all():
        raise InputError(
            f"{path}: a single map is the foreground's probability; this one holds 0 and 1 only, a label map"
        )
    return np.concatenate([1 - foreground, foreground])


def _all_classes(path: Path, label: Volume) -> NDArray[np.float32]:
    """A 4-D file with the classes on its last axis or its first."""
    volume = read_image(path)
    stored = np.moveaxis(volume.array, 0, 3)
    last, first = stored.shape[:3] == label.shape, stored.shape[1:] == label.shape
    if last and first:
        raise InputError(
            f"{path}: shape {stored.shape} fits the label with the classes on the first axis or on the last; "
            "store one file a class"
        )
    if not last and not first:
        raise InputError(
            f"{path}: shape {stored.shape} does not fit the label's {label.shape} with the classes on the first or "
            "the last axis"
        )
    found = volume.array if last else stored
    # A file with the classes first keeps the image's affine, though its axes have moved.
    _same(path, label, Volume(found, volume.affine, volume.header))
    return found


def _one_class(path: Path, label: Volume) -> NDArray[np.float32]:
    volume = read_image(path)
    if len(volume.array) != 1:
        raise InputError(f"{path}: a file for one class must have 3 axes; got {len(volume.array)} on the fourth")
    _same(path, label, volume)
    return volume.array


def _same(path: Path, label: Volume, volume: Volume) -> None:
    difference = same_grid(label, volume)
    if difference is not None:
        raise InputError(f"{path}: {difference}, unlike the label")
