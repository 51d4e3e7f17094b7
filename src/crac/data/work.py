"""Prepares one case into its folder of the store."""

import io
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crac.data.inspection import Inspection, read_case, to_classes
from crac.data.nifti import write
from crac.data.recipe import Recipe
from crac.data.records import FILES, IMAGE, LABEL, ORIGINAL_LABEL, Case, FileRecord
from crac.data.sources import RawCase
from crac.files import sha256, write_text

RECORDS = "finished"
"""Folder that holds a record of each finished case while a store is being prepared."""
FINGERPRINT = ".fingerprint"
"""File in it that says which input and recipe the records belong to."""


def prepare_case(
    work: Path, recipe: Recipe, label_values: Mapping[int, int], num_classes: int, task: tuple[RawCase, Inspection]
) -> Case:
    """Write ``work/cases/NAME`` and return its record; a case an earlier run has finished is taken as it is."""
    raw, inspection = task
    folder, record_path = work / "cases" / raw.name, work / RECORDS / f"{raw.name}.json"
    if record_path.is_file():
        return Case.model_validate_json(record_path.read_text(encoding="utf-8"))
    image, first, label = read_case(raw)
    classes = to_classes(label.array, label_values)
    prepared, geometry = recipe.apply(image, first.affine)
    resampled_label = recipe.resample_label(classes, geometry)
    prepared_label = recipe.cut(resampled_label[None])[0]
    before = int((resampled_label > 0).sum())

    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    _save(folder / IMAGE, prepared.astype(np.float16))
    _save(folder / LABEL, prepared_label)
    write(folder / ORIGINAL_LABEL, classes, first)
    record = Case(
        name=raw.name,
        patient=raw.patient,
        group=raw.group,
        geometry=geometry,
        spacing=geometry.spacing,
        prepared_shape=recipe.prepared_shape(geometry),
        prepared_spacing=recipe.prepared_spacing(geometry),
        voxels=inspection.voxels,
        prepared_voxels=tuple(np.bincount(prepared_label.ravel(), minlength=num_classes).tolist()),
        cropped_away=1 - int((prepared_label > 0).sum()) / before if before else 0.0,
        intensity=inspection.intensity,
        files={name: FileRecord(bytes=(folder / name).stat().st_size, sha256=sha256(folder / name)) for name in FILES},
    )
    write_text(record_path, record.model_dump_json())
    return record


def _save(path: Path, array: NDArray[Any]) -> None:
    # Through a buffer: numpy writing to the file itself forgets why a write fell short.
    buffer = io.BytesIO()
    np.save(buffer, array)
    path.write_bytes(buffer.getbuffer())
