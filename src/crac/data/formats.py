"""Image formats beside NIfTI: what a file or folder is called, and SimpleITK's readers for NRRD and DICOM series."""

import contextlib
import locale
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crac.errors import InputError, require

NIFTI = (".nii.gz", ".nii")
FREESURFER = (".mgz", ".mgh")
NRRD = (".nrrd",)
IMAGES = (*NIFTI, *FREESURFER, *NRRD)
"""Endings of the files that hold an image; a folder may hold one as a DICOM series."""
UNEVEN = 0.01
"""Share by which the steps between the slices of a series may differ."""


def is_image(path: Path) -> bool:
    """Whether a path can be an image: a file by its ending, or a folder by the DICOM files in it."""
    return not path.name.startswith(".") and (path.name.endswith(IMAGES) if not path.is_dir() else is_series(path))


def is_series(folder: Path) -> bool:
    """Whether the first file of a folder is DICOM."""
    files = (path for path in sorted(folder.iterdir()) if path.is_file() and not path.name.startswith("."))
    first = next(files, None)
    if first is None:
        return False
    with first.open("rb") as file:
        return file.read(132)[128:] == b"DICM"


def affine_of(spacing: Sequence[float], origin: Sequence[float], direction: Sequence[float]) -> NDArray[np.float64]:
    """The voxel to millimetre matrix of a 3-D image, from how SimpleITK describes it."""
    affine = np.eye(4)
    affine[:3, :3] = np.reshape(direction, (3, 3)) * np.asarray(spacing)
    affine[:3, 3] = origin
    return np.asarray(np.diag([-1.0, -1.0, 1.0, 1.0]) @ affine)  # SimpleITK counts towards left and back


def read_nrrd(path: Path, largest: int) -> tuple[NDArray[Any], NDArray[np.float64]]:
    """Array ``(X, Y, Z, C)`` and affine of an NRRD file.

    ``largest`` is the most bytes of voxels that are believed. A header that names another file is refused.
    """
    with path.open("rb") as file:
        header = file.read(2**16).partition(b"\n\n")[0].lower()
    if b"data file:" in header or b"datafile:" in header:
        raise InputError(f"{path}: its voxels must be in the file itself; the header names another")
    itk = require("SimpleITK")
    reader = itk.ImageFileReader()
    reader.SetImageIO("NrrdImageIO")
    reader.SetFileName(str(path))
    reader.ReadImageInformation()
    promised = int(np.prod(reader.GetSize(), dtype=object)) * reader.GetNumberOfComponents()  # a byte each, at least
    if promised > largest:
        raise InputError(f"{path} is damaged: its header promises {promised} voxels, more than the file can hold")
    return _array(path, itk, reader.Execute())


@contextlib.contextmanager
def _same_locale() -> Iterator[None]:
    """Put the locale back: GDCM leaves "C", in which text without an explicit encoding is read as ASCII."""
    before = locale.setlocale(locale.LC_ALL)
    try:
        yield
    finally:
        locale.setlocale(locale.LC_ALL, before)


@_same_locale()
def read_series(folder: Path) -> tuple[NDArray[Any], NDArray[np.float64]]:
    """Array ``(X, Y, Z, C)`` and affine of a DICOM series, which has the folder for itself."""
    itk = require("SimpleITK")
    reader = itk.ImageSeriesReader()
    series = reader.GetGDCMSeriesIDs(str(folder))
    if len(series) != 1:
        raise InputError(f"{folder} must hold one DICOM series; it holds {len(series)}")
    files = reader.GetGDCMSeriesFileNames(str(folder), series[0])
    reader.SetFileNames(files)
    reader.MetaDataDictionaryArrayUpdateOn()
    image = reader.Execute()
    if len(files) > 2:
        places = [np.array(reader.GetMetaData(index, "0020|0032").split("\\"), float) for index in range(len(files))]
        steps = np.linalg.norm(np.diff(places, axis=0), axis=1)
        if steps.max() > (1 + UNEVEN) * steps.min():
            raise InputError(
                f"{folder}: its slices must lie at equal distances; they are {steps.min():g} to {steps.max():g} mm "
                "apart, so one is missing or there are two"
            )
    return _array(folder, itk, image)


def _array(path: Path, itk: Any, image: Any) -> tuple[NDArray[Any], NDArray[np.float64]]:
    if image.GetDimension() == 2:
        image = itk.JoinSeries(image)
    if image.GetDimension() != 3:
        raise InputError(f"{path}: an image must have 2 or 3 axes, and channels; got {image.GetDimension()} axes")
    array = itk.GetArrayFromImage(image)
    array = array if image.GetNumberOfComponentsPerPixel() > 1 else array[..., None]
    return array.transpose(2, 1, 0, 3), affine_of(image.GetSpacing(), image.GetOrigin(), image.GetDirection())
