"""Images in, NIfTI out: every defect of a file is one ``InputError`` sentence that names it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
from nibabel.affines import voxel_sizes
from nibabel.openers import ImageOpener
from nibabel.spatialimages import SpatialImage
from numpy.typing import DTypeLike, NDArray

from crac.data.formats import FREESURFER, IMAGES, NIFTI, NRRD, read_nrrd, read_series
from crac.errors import InputError
from crac.files import replacing

ENDINGS = NIFTI
GZIP_LIMIT = 1100
"""Deflate cannot shrink data by more than a factor of about 1,030."""
PART = 2**24
"""Voxels that are written at a time."""
UNITS = {1: "metres", 3: "micrometres"}
"""What a NIfTI header calls lengths that are no millimetres; many say nothing."""


@dataclass(frozen=True)
class Volume:
    """An array on its own grid.

    Args:
        array: Image ``(C, X, Y, Z)`` float32, or label ``(X, Y, Z)`` int32.
        affine: Voxel to millimetre matrix.
        header: The file's, so that a result can be written in exactly its geometry.
    """

    array: NDArray[Any]
    affine: NDArray[np.float64]
    header: nib.Nifti1Header

    @property
    def shape(self) -> tuple[int, int, int]:
        """Voxels along ``(X, Y, Z)``."""
        x, y, z = self.array.shape[-3:]
        return x, y, z


def stem(path: Path) -> str:
    """The file's name without ``.nii.gz`` and the like."""
    return path.name.removesuffix(next((ending for ending in IMAGES if path.name.endswith(ending)), ""))


def read_image(path: str | Path) -> Volume:
    """Read an image; a fourth axis holds channels, a 2-D image is one slice."""
    return _as_image(*_load(Path(path)), str(path))


def image_volume(image: SpatialImage, name: str) -> Volume:
    """The volume of a nibabel image; ``name`` is what its errors call it."""
    _check_header(name, image)
    with np.errstate(all="ignore"):
        array = np.asanyarray(image.dataobj)
    array, affine = array.reshape((*array.shape, 1, 1)[:4]), np.asarray(image.affine, dtype=np.float64)
    return _as_image(array, affine, image.header if isinstance(image, nib.Nifti1Pair) else _header(array, affine), name)


def read_label(path: str | Path) -> Volume:
    """Read a label map; its values must be integers, in whatever type they are stored."""
    path = Path(path)
    array, affine, header = _load(path)
    if array.shape[3] != 1:
        raise InputError(f"{path}: a label must have one channel; got shape {array.shape}")
    array = array[..., 0]
    if array.dtype.kind == "f":
        with np.errstate(all="ignore"):
            rounded = np.rint(array)
            # A stored slope may leave 0.99999 where 1 was meant.
            off = ~(np.abs(array - rounded) < 1e-3)
        if off.any():
            count, example = int(off.sum()), array[off].flat[0]
            raise InputError(f"{path}: label values must be integers; {count} voxels are not, e.g. {example}")
        array = rounded
    if array.min() < -(2**31) or array.max() >= 2**31:
        raise InputError(f"{path}: label values must fit into 32 bits; got {array.min()} to {array.max()}")
    return Volume(array.astype(np.int32), affine, header)


def same_grid(first: Volume, second: Volume) -> str | None:
    """What differs between two grids, or None: shapes exactly, positions up to a tenth of a voxel."""
    if first.shape != second.shape:
        return f"shape {second.shape}, not {first.shape}"
    corners = np.array(np.meshgrid(*([0, size - 1] for size in first.shape), [1])).reshape(4, -1)
    apart = np.abs((first.affine - second.affine) @ corners).max()
    if apart > 0.1 * voxel_sizes(first.affine).min():
        return f"an affine that puts a corner {apart:.3g} mm elsewhere"
    return None


def write(path: str | Path, array: NDArray[Any], like: Volume) -> None:
    """Write ``(X, Y, Z)`` or ``(X, Y, Z, C)`` with the geometry of ``like``, whole or not at all."""
    channels = [array] if array.ndim < 4 else list(np.moveaxis(array, 3, 0))
    write_channels(path, channels, array.shape, array.dtype, like)


def write_channels(
    path: str | Path,
    channels: Iterable[NDArray[Any]],
    shape: Sequence[int],
    dtype: DTypeLike,
    like: Volume,
    slope: float = 1.0,
) -> None:
    """Write a file whose channels come one after the other, with the geometry of ``like``, whole or not at all.

    Args:
        path: File to write.
        channels: ``(X, Y, Z)`` or ``(X, Y)`` each.
        shape: Shape of the file, ``(X, Y, Z, C)`` where there is more than one channel.
        dtype: Type of the numbers in the file.
        like: Volume whose header the file gets.
        slope: What readers multiply the values with.
    """
    path = Path(path)
    header = like.header.copy()
    header.set_data_dtype(dtype)
    header["cal_min"] = header["cal_max"] = 0  # a display range meant for other values
    # NIfTI-2 stores its affine in double precision, which NIfTI-1 would round.
    kind = nib.Nifti2Image if isinstance(header, nib.Nifti2Header) else nib.Nifti1Image
    image = kind(np.broadcast_to(np.zeros((), dtype=dtype), shape), like.affine, header)
    image.update_header()
    header = image.header
    header.set_slope_inter(slope, 0)
    with replacing(path) as partial, ImageOpener(str(partial), "wb") as file:
        header.write_to(file)
        file.write(b"\0" * (header.get_data_offset() - file.tell()))
        for channel in channels:
            for part in np.array_split(channel, -(-channel.size // PART), axis=channel.ndim - 1):
                file.write(part.astype(header.get_data_dtype(), copy=False).tobytes(order="F"))


def _as_image(array: NDArray[Any], affine: NDArray[np.float64], header: nib.Nifti1Header, name: str) -> Volume:
    with np.errstate(all="ignore"):  # what does not fit into float32 is found below
        array = array.astype(np.float32)
    broken = array.size - int(np.isfinite(array).sum())
    if broken:
        raise InputError(f"{name}: {broken} of {array.size} voxels are NaN or infinite; every voxel must be finite")
    return Volume(np.moveaxis(array, 3, 0), affine, header)


def _load(path: Path) -> tuple[NDArray[Any], NDArray[np.float64], nib.Nifti1Header]:
    """Array ``(X, Y, Z, C)``, affine and header."""
    if not path.exists():
        raise InputError(f"{path}: no such file")
    try:
        if path.is_dir() or path.name.endswith(NRRD):
            return _foreign(path)
        image = nib.load(path)
        if not isinstance(image, nib.MGHImage if path.name.endswith(FREESURFER) else nib.Nifti1Pair):
            accepted = ", ".join(IMAGES)
            raise InputError(f"{path} is not what its name says but {type(image).__name__}; accepted are {accepted}")
        _check_header(str(path), image)
        _check_size(path, image)
        with np.errstate(all="ignore"):
            array = np.asanyarray(image.dataobj)
        affine = np.asarray(image.affine, dtype=np.float64)
    except InputError:
        raise
    except Exception as error:  # a broken file raises a dozen unrelated types from nibabel, zlib, gzip and numpy
        reason = (str(error).splitlines() or [""])[0] or type(error).__name__
        raise InputError(f"{path} is damaged or not an image: {reason}") from error
    # Axes beyond the fourth are of one voxel, missing ones too.
    array = array.reshape((*array.shape, 1, 1)[:4])
    nifti = isinstance(image, nib.Nifti1Pair)
    return array, affine, image.header if nifti else _header(array, affine)


def _foreign(path: Path) -> tuple[NDArray[Any], NDArray[np.float64], nib.Nifti1Header]:
    array, affine = read_series(path) if path.is_dir() else read_nrrd(path, path.stat().st_size * GZIP_LIMIT)
    if array.dtype.kind not in "iuf":
        raise InputError(f"{path}: voxels must be integers or floats; got {array.dtype}")
    _check_affine(str(path), affine)
    return array, affine, _header(array, affine)


def _header(array: NDArray[Any], affine: NDArray[np.float64]) -> nib.Nifti1Header:
    """The header that results for an image of another format get."""
    header = nib.Nifti1Image(np.zeros(array.shape[:3], dtype=np.uint8), affine).header
    header.set_xyzt_units("mm")
    return header


def _check_header(path: str, image: SpatialImage) -> None:
    shape, dtype = image.shape, image.get_data_dtype()
    while len(shape) > 4 and shape[-1] == 1:
        shape = shape[:-1]
    if not 2 <= len(shape) <= 4 or min(shape, default=0) < 1:
        raise InputError(f"{path}: an image must have 2 to 4 axes of at least one voxel; got shape {image.shape}")
    if dtype.kind not in "iuf":
        raise InputError(f"{path}: voxels must be integers or floats; got {dtype}")
    if isinstance(image, nib.Nifti1Pair) and (unit := UNITS.get(int(image.header["xyzt_units"]) & 7)):
        raise InputError(f"{path}: the header must give lengths in millimetres (xyzt_units); it gives {unit}")
    _check_affine(path, image.affine)


def _check_size(path: Path, image: SpatialImage) -> None:
    promised = int(np.prod(image.shape, dtype=object)) * image.get_data_dtype().itemsize
    size = path.stat().st_size
    if promised > size * (GZIP_LIMIT if path.name.endswith((".gz", ".mgz")) else 1):
        raise InputError(f"{path} is damaged: its header promises {promised} bytes of voxels, the file has {size}")


def _check_affine(path: str, affine: NDArray[np.float64] | None) -> None:
    if affine is None:
        raise InputError(f"{path}: the image must have an affine, which says where its voxels lie; it has none")
    if not np.isfinite(affine).all() or not abs(np.linalg.det(affine[:3, :3])) > 1e-12:
        raise InputError(f"{path}: the affine is not a usable grid: {np.asarray(affine)[:3].tolist()}")
