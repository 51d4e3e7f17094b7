"""What is done with one raw case: read it from end to end and list its defects, then prepare it into its folder."""

import contextlib
import io
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
from nibabel.affines import voxel_sizes
from numpy.typing import NDArray

from crac.data.nifti import Volume, read_image, read_label, same_grid, write
from crac.data.recipe import Recipe
from crac.data.records import FILES, IMAGE, LABEL, ORIGINAL_LABEL, Case, FileRecord, Statistics
from crac.data.sources import RawCase
from crac.data.sources.source import IGNORE
from crac.errors import InputError
from crac.files import replacing, sha256, write_text

RECORDS = ".crac-prepare"
"""Folder that holds a record of each finished case while a store is being prepared."""
FINGERPRINT = ".fingerprint"
"""File in it that says which input and recipe the records belong to."""


@dataclass(frozen=True)
class Inspection:
    """What one case looks like.

    Args:
        problems: One sentence for each defect; the rest is empty when there are any.
        voxels: Voxels of each class.
        intensity: Statistics of each channel.
        canonical_spacing: Millimetres along right, anterior, superior.
        canonical_shape: Voxels along these.
        foreground_range: The 0.5 and 99.5 percentile of the labelled voxels of each channel.
    """

    problems: tuple[str, ...] = ()
    voxels: tuple[int, ...] = ()
    intensity: tuple[Statistics, ...] = ()
    canonical_spacing: tuple[float, ...] = ()
    canonical_shape: tuple[int, ...] = ()
    foreground_range: tuple[tuple[float, float], ...] = ()


def inspect_case(label_values: Mapping[int, int], num_classes: int, channels: int, case: RawCase) -> Inspection:
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
            problems.append(f"{case.label} does not lie on its image {path.name}: it has {difference}")
    if not problems and (found := sum(len(image.array) for image in images)) != channels:
        problems.append(f"{case.images[0]}: {channels} channels are announced, {found} found")
    values, counts = np.unique(label.array, return_counts=True)
    voxels = [0] * num_classes
    for value, count in zip(values.tolist(), counts.tolist(), strict=True):
        if label_values.get(value) == IGNORE:
            continue
        if value in label_values:
            voxels[label_values[value]] += count
        else:
            accepted = ", ".join(map(str, sorted(label_values)))
            problems.append(f"{case.label} holds the label value {value} ({count} voxels); accepted are {accepted}")
    if problems:
        return Inspection(tuple(problems))
    stacked = np.concatenate([image.array for image in images])
    foreground = _foreground(_to_classes(label.array, label_values))
    axes = np.argsort(nib.io_orientation(label.affine)[:, 0])
    return Inspection(
        voxels=tuple(voxels),
        intensity=tuple(map(_statistics, stacked)),
        canonical_spacing=tuple(voxel_sizes(images[0].affine)[axes].tolist()),
        canonical_shape=tuple(images[0].shape[axis] for axis in axes),
        foreground_range=tuple(_range(channel[foreground] if foreground.any() else channel) for channel in stacked),
    )


def prepare_case(
    target: Path, recipe: Recipe, label_values: Mapping[int, int], num_classes: int, task: tuple[RawCase, Inspection]
) -> Case:
    """Write ``target/cases/NAME`` and return its record; a case an earlier run has finished is taken as it is."""
    raw, inspection = task
    folder, record_path = target / "cases" / raw.name, target / RECORDS / f"{raw.name}.json"
    with contextlib.suppress(OSError, ValueError):  # no record, or a damaged one: the case is prepared anew
        return Case.model_validate_json(record_path.read_text(encoding="utf-8"))
    images = [read_image(path) for path in raw.images]
    classes = _to_classes(read_label(raw.label).array, label_values)
    prepared, geometry = recipe.apply(np.concatenate([image.array for image in images]), images[0].affine)
    resampled_label = recipe.resample_label(classes, geometry)
    prepared_label = recipe.cut(resampled_label[None])[0]
    before = int(_foreground(resampled_label).sum())

    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    _save(folder / IMAGE, prepared.astype(np.float16))
    _save(folder / LABEL, prepared_label)
    write(folder / ORIGINAL_LABEL, classes, images[0])
    record = Case(
        name=raw.name,
        patient=raw.patient,
        group=raw.group,
        geometry=geometry,
        spacing=geometry.spacing,
        prepared_shape=recipe.prepared_shape(geometry),
        prepared_spacing=recipe.prepared_spacing(geometry),
        voxels=inspection.voxels,
        prepared_voxels=tuple(np.bincount(prepared_label.ravel(), minlength=num_classes)[:num_classes].tolist()),
        cropped_away=1 - int(_foreground(prepared_label).sum()) / before if before else 0.0,
        intensity=inspection.intensity,
        files={name: FileRecord(bytes=(folder / name).stat().st_size, sha256=sha256(folder / name)) for name in FILES},
    )
    write_text(record_path, record.model_dump_json())
    return record


def _to_classes(label: NDArray[np.int32], label_values: Mapping[int, int]) -> NDArray[np.uint8]:
    """Class indices from the values of a file."""
    lookup = np.zeros(max(label_values) + 1, dtype=np.uint8)
    for value, index in label_values.items():
        lookup[value] = index
    return lookup[label]


def _foreground(classes: NDArray[np.uint8]) -> NDArray[np.bool_]:
    return np.asarray((classes > 0) & (classes != IGNORE))


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


def _save(path: Path, array: NDArray[Any]) -> None:
    # Through a buffer: numpy writing to the file itself forgets why a write fell short.
    buffer = io.BytesIO()
    np.save(buffer, array)
    with replacing(path) as partial:
        partial.write_bytes(buffer.getbuffer())
