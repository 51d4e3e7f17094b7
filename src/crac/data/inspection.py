"""Reads one raw case from end to end: what is wrong with it, and the numbers a recipe and a manifest need."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import nibabel as nib
import numpy as np
from nibabel.affines import voxel_sizes
from numpy.typing import NDArray

from crac.data.nifti import Volume, read_image, read_label, same_grid
from crac.data.records import Statistics
from crac.data.sources import RawCase
from crac.errors import InputError


@dataclass(frozen=True)
class Inspection:
    """What one case looks like.

    Args:
        problems: One sentence for each defect; the rest is empty when there are any.
        voxels: Voxels of each class.
        intensity: Statistics of each channel.
        canonical_spacing: Millimetres along right, anterior, superior.
        foreground_range: The 0.5 and 99.5 percentile of the labelled voxels of each channel.
    """

    problems: tuple[str, ...] = ()
    voxels: tuple[int, ...] = ()
    intensity: tuple[Statistics, ...] = ()
    canonical_spacing: tuple[float, ...] = ()
    foreground_range: tuple[tuple[float, float], ...] = ()


def inspect_case(
    label_values: Mapping[int, int], class_names: Sequence[str], channels: int, case: RawCase
) -> Inspection:
    """Read and check one case; defects are returned, not raised, so that all can be listed."""
    problems: list[str] = []
    images: list[Volume] = []
    for path in case.images:
        try:
            images.append(read_image(path))
        except InputError as error:
            problems.append(str(error))
    try:
        label = read_label(case.label)
    except InputError as error:
        return Inspection((*problems, str(error)))
    for path, image in zip(case.images, images, strict=False):
        if difference := same_grid(image, label):
            problems.append(f"{case.label} has {difference}, as its image {path.name} has")
    if not problems and (found := sum(len(image.array) for image in images)) != channels:
        problems.append(f"{case.images[0]}: {channels} channels are announced, {found} found")
    values, counts = np.unique(label.array, return_counts=True)
    voxels = [0] * len(class_names)
    for value, count in zip(values.tolist(), counts.tolist(), strict=True):
        if value in label_values:
            voxels[label_values[value]] += count
        else:
            accepted = ", ".join(map(str, sorted(label_values)))
            problems.append(f"{case.label} holds the label value {value} ({count} voxels); accepted are {accepted}")
    if problems:
        return Inspection(tuple(problems))
    stacked = np.concatenate([image.array for image in images])
    foreground = to_classes(label.array, label_values) > 0
    axes = np.argsort(nib.io_orientation(label.affine)[:, 0])
    return Inspection(
        voxels=tuple(voxels),
        intensity=tuple(map(_statistics, stacked)),
        canonical_spacing=tuple(voxel_sizes(images[0].affine)[axes].tolist()),
        foreground_range=tuple(_range(channel[foreground] if foreground.any() else channel) for channel in stacked),
    )


def read_case(case: RawCase) -> tuple[NDArray[np.float32], Volume, Volume]:
    """The image with all its channels ``(C, X, Y, Z)``, its first file, and the label."""
    images = [read_image(path) for path in case.images]
    return np.concatenate([image.array for image in images]), images[0], read_label(case.label)


def to_classes(label: NDArray[np.int32], label_values: Mapping[int, int]) -> NDArray[np.uint8]:
    """Class indices from the values of a file."""
    lookup = np.zeros(max(label_values) + 1, dtype=np.uint8)
    for value, index in label_values.items():
        lookup[value] = index
    return lookup[label]


def _range(values: NDArray[np.float32]) -> tuple[float, float]:
    low, high = np.percentile(values, (0.5, 99.5)).tolist()
    return low, high


def _statistics(channel: NDArray[np.float32]) -> Statistics:
    low, high = _range(channel)
    return Statistics(
        minimum=float(channel.min()),
        maximum=float(channel.max()),
        mean=float(channel.mean(dtype=np.float64)),
        deviation=float(channel.std(dtype=np.float64)),
        percentile_0_5=low,
        percentile_99_5=high,
    )
