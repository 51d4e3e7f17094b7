"""Probabilities in files, read without a label map beside them and written back as they were stored."""

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
from nibabel.affines import voxel_sizes
from numpy.typing import NDArray

from crac.data.nifti import read_image, stem
from crac.errors import InputError
from crac.evaluation.nnunet import read_archive
from crac.files import replacing
from crac.functional.arrays import in_steps

Array = NDArray[np.float32]
COARSEST = 0.01
"""Probabilities in steps larger than this are not worth calibrating."""
MOST_STEPS = 2**16 - 1
"""Integers are given no finer steps than this: single precision has none."""


class Stored(ABC):
    """The probabilities of one volume.

    Args:
        name: Name of the volume.
        files: Files that hold them.
        beside: Files that belong to them: for nnU-Net, the properties, then the label map.
    """

    def __init__(self, name: str, files: tuple[Path, ...], beside: tuple[Path, ...] = ()) -> None:
        self.name, self.files, self.beside = name, files, beside

    @abstractmethod
    def read(self) -> tuple[Array, tuple[float, ...] | None]:
        """Probabilities ``(K, X, Y, Z)``, and the distance between voxels along each axis if it is known."""

    @abstractmethod
    def write(self, folder: Path, probabilities: Array, winner: NDArray[np.intp] | None) -> None:
        """Write other probabilities ``(K, X, Y, Z)`` into files of the same names and kind.

        Args:
            folder: Folder to write into.
            probabilities: What is to be written.
            winner: Class ``(X, Y, Z)`` that stays the most probable one when they are rounded; None lets it change.
        """


class Archive(Stored):
    """nnU-Net's ``.npz``, an array ``(K, z, y, x)``, with ``.pkl`` and label map beside it."""

    def __init__(self, path: Path) -> None:
        beside = (path.with_suffix(".pkl"), path.with_suffix(".nii.gz"), path.with_suffix(".nii"))
        super().__init__(path.stem, (path,), beside)

    def read(self) -> tuple[Array, tuple[float, ...] | None]:
        """The archive, its axes turned around to ``(K, x, y, z)``."""
        array, properties = read_archive(self.files[0])
        self._dtype = array.dtype
        spacing = (properties or {}).get("spacing")
        return np.asarray(array, dtype=np.float32).transpose(0, 3, 2, 1), None if spacing is None else spacing[::-1]

    def write(self, folder: Path, probabilities: Array, winner: NDArray[np.intp] | None) -> None:
        """Write a compressed archive, as nnU-Net does."""
        found = rounded(probabilities, self._dtype, winner).transpose(0, 3, 2, 1)
        with replacing(folder / self.files[0].name) as partial:
            np.savez_compressed(partial, probabilities=np.ascontiguousarray(found))


class OneFile(Stored):
    """A 4-D NIfTI with the classes on its last axis or its first."""

    def __init__(self, path: Path, num_classes: int) -> None:
        super().__init__(stem(path), (path,))
        self.num_classes = num_classes

    def read(self) -> tuple[Array, tuple[float, ...] | None]:
        """The classes are on the axis along which they sum to 1, if both are as long as there are classes."""
        volume, path = read_image(self.files[0]), self.files[0]
        last, first = volume.array, np.moveaxis(volume.array, 0, 3)
        fits = [form for form in (last, first) if len(form) == self.num_classes]
        if not fits:
            raise InputError(
                f"{path}: shape {first.shape} has no {self.num_classes} classes on its first or its last axis"
            )
        sums = [form for form in fits if np.allclose(form[:, :8].sum(0), 1, atol=1e-2)] or fits
        self._first = sums[0] is first
        return sums[0], tuple(float(size) for size in voxel_sizes(volume.affine))

    def write(self, folder: Path, probabilities: Array, winner: NDArray[np.intp] | None) -> None:
        """Write the classes on the axis they were on."""
        image = nib.load(self.files[0])
        steps = _steps(image, self.files[0])
        found = _as_in(image, steps, probabilities, winner)
        _save(folder / self.files[0].name, found if self._first else np.moveaxis(found, 0, 3), image, steps)


class OneFileAClass(Stored):
    """A NIfTI for each class."""

    def __init__(self, name: str, paths: tuple[Path, ...]) -> None:
        super().__init__(name, paths)

    def read(self) -> tuple[Array, tuple[float, ...] | None]:
        """All files together; they must have one shape."""
        volumes = [read_image(path) for path in self.files]
        for path, volume in zip(self.files, volumes, strict=True):
            if volume.array.shape != (1, *volumes[0].shape):
                raise InputError(f"{path}: shape {volume.array.shape[1:]} is not {volumes[0].shape}, that of class 0")
        found = np.concatenate([volume.array for volume in volumes])
        return found, tuple(float(size) for size in voxel_sizes(volumes[0].affine))

    def write(self, folder: Path, probabilities: Array, winner: NDArray[np.intp] | None) -> None:
        """Write a file for each class; all are as finely rounded as class 0."""
        first = nib.load(self.files[0])
        steps = _steps(first, self.files[0])
        for path, part in zip(self.files, _as_in(first, steps, probabilities, winner), strict=True):
            _save(folder / path.name, part, nib.load(path), steps)


class Foreground(Stored):
    """A NIfTI with the foreground's probabilities alone, of a task with two classes."""

    def __init__(self, path: Path) -> None:
        super().__init__(stem(path), (path,))

    def read(self) -> tuple[Array, tuple[float, ...] | None]:
        """What the foreground lacks to 1 is the background's."""
        volume, path = read_image(self.files[0]), self.files[0]
        if volume.array.any() and np.isin(volume.array, (0, 1)).all():
            raise InputError(f"{path} holds 0 and 1 only: a label map, not the foreground's probabilities")
        found = np.concatenate([1 - volume.array, volume.array])
        return found, tuple(float(size) for size in voxel_sizes(volume.affine))

    def write(self, folder: Path, probabilities: Array, winner: NDArray[np.intp] | None) -> None:
        """Write the foreground; where rounding would change the winner, it is one step off."""
        image = nib.load(self.files[0])
        dtype, steps = image.get_data_dtype(), _steps(image, self.files[0])
        if dtype.kind != "f":
            found = _as_in(image, steps, probabilities, winner)[1]
        else:
            found = probabilities[1].astype(dtype)
            if winner is not None:
                x, y, z = np.nonzero((1 - found < found) != (winner == 1))
                side = np.where(winner[x, y, z] == 1, 1, 0).astype(dtype)
                found[x, y, z] = np.nextafter(found[x, y, z], side)
        _save(folder / self.files[0].name, found, image, steps)


def rounded(probabilities: Array, dtype: Any, winner: NDArray[np.intp] | None) -> NDArray[Any]:
    """The numbers in another floating-point type, in which the winner is still ahead of all others."""
    found = probabilities.astype(dtype)
    if winner is not None:
        x, y, z = np.nonzero(found.argmax(0) != winner)
        best = found[:, x, y, z].max(0)
        found[winner[x, y, z], x, y, z] = np.nextafter(best, np.asarray(2, dtype))
    return found


def _steps(image: Any, path: Path) -> int:
    """How many steps there are between 0 and 1 where a file like this one holds integers; 1 for floats.

    They are the file's own where these divide the way from 0 to 1. What a writer has scaled to the smallest and the
    largest value of one volume cannot hold those of another, and takes as many as fit.
    """
    dtype, slope, inter = image.get_data_dtype(), float(image.dataobj.slope), float(image.dataobj.inter)
    if dtype.kind == "f":
        return 1
    if not 0 < slope <= COARSEST:
        raise InputError(f"{path}: {dtype} in steps of {slope:g} cannot hold probabilities; store floats")
    most, own = min(int(np.iinfo(dtype).max), MOST_STEPS), round(1 / slope)
    return own if inter == 0 and own <= most and abs(own * slope - 1) < 1e-4 else most


def _as_in(image: Any, steps: int, probabilities: Array, winner: NDArray[np.intp] | None) -> NDArray[Any]:
    """Probabilities of all classes as the numbers that a file of the image's type stores."""
    dtype = image.get_data_dtype()
    if dtype.kind == "f":
        return rounded(probabilities, dtype, winner)
    first = probabilities.argmax(0) if winner is None else winner
    return in_steps(probabilities, steps, first).astype(dtype)


def _save(path: Path, stored: NDArray[Any], image: Any, steps: int) -> None:
    """Write numbers as they are to be stored, with the header of an image."""
    made = type(image)(stored.reshape(image.shape), image.affine, image.header, dtype=stored.dtype)
    made.header.set_slope_inter(1 / steps, 0)  # numbers are then written as they are
    with replacing(path) as partial:
        made.to_filename(partial)
