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

Array = NDArray[np.float32]
COARSEST = 0.01
"""Probabilities in steps larger than this are not worth calibrating."""


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
        found = _as_in(image, self.files[0], probabilities, winner)
        _save(folder / self.files[0].name, found if self._first else np.moveaxis(found, 0, 3), image)


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
        for path, part in zip(self.files, _as_in(first, self.files[0], probabilities, winner), strict=True):
            _save(folder / path.name, part, nib.load(path), like=first)


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
        found = _as_in(image, self.files[0], probabilities[1:], None)
        if winner is not None:
            stored = found[0] * float(image.dataobj.slope) + float(image.dataobj.inter)
            x, y, z = np.nonzero((1 - stored < stored) != (winner == 1))
            up = winner[x, y, z] == 1
            if found.dtype.kind == "f":
                found[0, x, y, z] = np.nextafter(found[0, x, y, z], np.where(up, 1, 0).astype(found.dtype))
            else:
                found[0, x, y, z] = np.where(up, found[0, x, y, z] + 1, found[0, x, y, z] - 1)
        _save(folder / self.files[0].name, found[0], image)


def rounded(probabilities: Array, dtype: Any, winner: NDArray[np.intp] | None) -> NDArray[Any]:
    """The numbers in another type, integers rounded, in which the winner is still ahead of all others."""
    dtype = np.dtype(dtype)
    if dtype.kind == "f":
        found = probabilities.astype(dtype)
    else:
        limits = np.iinfo(dtype)
        found = np.rint(probabilities).clip(limits.min, limits.max).astype(dtype)
    if winner is not None:
        x, y, z = np.nonzero(found.argmax(0) != winner)
        best = found[:, x, y, z].max(0)
        found[winner[x, y, z], x, y, z] = np.nextafter(best, np.asarray(2, dtype)) if dtype.kind == "f" else best + 1
    return found


def _as_in(image: Any, path: Path, probabilities: Array, winner: NDArray[np.intp] | None) -> NDArray[Any]:
    """Probabilities as the numbers that a NIfTI file stores, which its slope and intercept turn back into them."""
    dtype, slope, inter = image.get_data_dtype(), float(image.dataobj.slope), float(image.dataobj.inter)
    if dtype.kind != "f" and not 0 < slope <= COARSEST:
        raise InputError(f"{path}: {dtype} in steps of {slope:g} cannot hold probabilities; store floats")
    if slope != 1 or inter != 0:
        probabilities = np.asarray((probabilities - inter) / slope, dtype=np.float32)
    return rounded(probabilities, dtype, winner)


def _save(path: Path, stored: NDArray[Any], image: Any, like: Any = None) -> None:
    """Write numbers as they are to be stored, with the header of an image, and slope and intercept of ``like``."""
    source = image if like is None else like
    made = type(image)(stored.reshape(image.shape), image.affine, image.header, dtype=stored.dtype)
    made.header.set_slope_inter(source.dataobj.slope, source.dataobj.inter)  # numbers are then written as they are
    with replacing(path) as partial:
        made.to_filename(partial)
