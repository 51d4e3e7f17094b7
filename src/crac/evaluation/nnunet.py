"""What nnU-Net v2 saves with ``--save_probabilities``: an array in ``.npz`` and its properties in ``.pkl``.

The array is ``(K, z, y, x)``: the reverse of a NIfTI file's axes, whichever reader nnU-Net was told to use. One reader
also turns the image to the standard orientation; only the properties say so.
"""

import io
import pickle
import zipfile
from pathlib import Path
from typing import Any, Literal

import nibabel as nib
import numpy as np
from nibabel.orientations import apply_orientation, io_orientation, ornt_transform
from numpy.typing import NDArray

from crac.data.formats import affine_of
from crac.data.nifti import Volume, same_grid
from crac.errors import InputError
from crac.evaluation.archive import check_sizes

Orientation = Literal["stored", "ras"]
STANDARD = np.array([[0, 1], [1, 1], [2, 1]])
"""Right, anterior, superior, as nibabel writes orientations."""

PLAIN = {
    ("collections", "OrderedDict"),
    ("collections", "defaultdict"),
    ("_codecs", "encode"),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
} | {
    (f"numpy.{core}.{module}", name)
    for core in ("core", "_core")
    for module, name in (("multiarray", "_reconstruct"), ("multiarray", "scalar"), ("numeric", "_frombuffer"))
}
"""What numbers, text, lists and arrays are made of in a pickle."""


class _PlainUnpickler(pickle.Unpickler):
    """Reads data only: a pickle that asks for anything else, which is how one runs code, is refused."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in PLAIN:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}; only numbers, text and arrays are read")
        return _empty_array if name == "_reconstruct" else super().find_class(module, name)


def _empty_array(kind: type[np.ndarray[Any, Any]], shape: tuple[int, ...], dtype: bytes) -> NDArray[Any]:
    """The array that a pickle begins with, which numpy always writes empty: a large one would only take memory."""
    if shape != (0,):
        raise pickle.UnpicklingError(f"it asks for an array of shape {shape} without contents")
    return np.ndarray.__new__(kind, shape, np.dtype(dtype.decode("latin-1")))


def read_probabilities(
    path: Path, label: Volume, segmentation: Volume | None = None, orientation: Orientation | None = None
) -> NDArray[np.float32]:
    """The probabilities ``(K, X, Y, Z)`` on the grid of a label map.

    Args:
        path: The ``.npz``; its ``.pkl`` beside it says how nnU-Net's reader has turned the image.
        label: The label map.
        segmentation: What nnU-Net made of the probabilities, which tells the same where the ``.pkl`` is missing.
        orientation: Orientation of the array where neither is there: ``stored`` as in the image, or ``ras``.

    Raises:
        InputError: The file is damaged, its shape, spacing or position is not the label's, or its orientation cannot
            be known.
    """
    array, properties = read_archive(path)
    found = np.transpose(np.asarray(array, dtype=np.float32), (0, 3, 2, 1))
    if properties is not None:
        try:
            found = _to_grid(path, found, properties, label)
        except InputError:
            raise
        except Exception as error:  # properties of other types and shapes than nnU-Net writes
            raise InputError(f"{path.with_suffix('.pkl')} does not hold nnU-Net's properties: {error!r}") from error
    else:
        found = _oriented(path, found, label, segmentation, orientation)
    if found.shape[1:] != label.shape:
        if array.shape[1:] == label.shape:
            raise InputError(
                f"{path}: the array must be (K, z, y, x), as nnU-Net writes it; it looks like (K, x, y, z)"
            )
        raise InputError(f"{path}: shape {array.shape[1:]} (z, y, x) does not fit the label's {label.shape}")
    return found


def read_archive(path: Path) -> tuple[NDArray[np.floating[Any]], dict[str, Any] | None]:
    """The probabilities ``(K, z, y, x)`` as they are stored, and the properties if they are beside them."""
    return _array(path), _properties(path.with_suffix(".pkl"))


def _array(path: Path) -> NDArray[np.floating[Any]]:
    try:
        check_sizes(path)
        with np.load(path, allow_pickle=False) as archive:
            names = archive.files
            array = archive["probabilities"] if "probabilities" in names else None
    except InputError:
        raise
    except (OSError, ValueError, zipfile.BadZipFile, EOFError) as error:
        reason = (str(error).splitlines() or [""])[0]
        raise InputError(f"{path} is damaged or not an .npz of numbers: {reason}") from error
    except Exception as error:  # a damaged archive raises zlib's and struct's own errors too
        raise InputError(f"{path} is damaged: {error}") from error
    if array is None:
        raise InputError(f"{path}: no array 'probabilities'; it holds {', '.join(names) or 'nothing'}")
    if not isinstance(array, np.ndarray):
        raise InputError(f"{path} is damaged: 'probabilities' is no array")
    if array.ndim != 4 or array.dtype.kind != "f" or 0 in array.shape:
        raise InputError(f"{path}: probabilities must be floats (K, z, y, x); got {array.dtype} {array.shape}")
    return np.asarray(array)


def _properties(path: Path) -> dict[str, Any] | None:
    if not path.is_file():
        return None
    try:
        found = _PlainUnpickler(io.BytesIO(path.read_bytes())).load()
    except Exception as error:  # a damaged pickle can raise anything
        raise InputError(f"{path} cannot be read: {error}") from error
    if not isinstance(found, dict):
        raise InputError(f"{path} must hold nnU-Net's properties; got {type(found).__name__}")
    return found


def _oriented(
    path: Path,
    array: NDArray[np.float32],
    label: Volume,
    segmentation: Volume | None,
    orientation: Orientation | None,
) -> NDArray[np.float32]:
    """Turn an array without properties to the label's orientation, if it can be known how it was turned away."""
    own = io_orientation(label.affine)
    ways = {"stored": array, "ras": _turned(array, ornt_transform(STANDARD, own))}
    if orientation is not None:
        return ways[orientation]
    fitting = [way for way in ways.values() if way.shape[1:] == label.shape]
    if len(fitting) < 2 or np.array_equal(own, STANDARD):
        return fitting[0] if fitting else array
    if segmentation is not None:
        right = [float((way.argmax(0) == segmentation.array).mean()) for way in fitting]
        if right[0] != right[1]:
            return fitting[right.index(max(right))]
    codes = "".join(nib.aff2axcodes(label.affine))
    raise InputError(
        f"{path}: its orientation cannot be known: the label lies in {codes}, and only "
        f"{path.stem}.pkl, or nnU-Net's segmentation {path.stem}.nii.gz, says whether nnU-Net has turned the image to "
        "RAS; put one of them beside it, or give --orientation stored or --orientation ras"
    )


def _turned(array: NDArray[np.float32], change: NDArray[np.float64]) -> NDArray[np.float32]:
    return np.stack([apply_orientation(one, change) for one in array])


def _to_grid(path: Path, array: NDArray[np.float32], properties: dict[str, Any], label: Volume) -> NDArray[np.float32]:
    """Turn the array to the label's orientation where it was turned away from it, and check where it lies."""
    affine = _affine(properties)
    if affine is None:
        spacing = properties.get("spacing")
        voxel = nib.affines.voxel_sizes(label.affine)
        if spacing is not None and not np.allclose(np.asarray(spacing, dtype=float)[::-1], voxel, rtol=1e-3):
            raise InputError(f"{path}: spacing {list(spacing)} (z, y, x) is not the label's {voxel[::-1].tolist()}")
        return array
    turned = properties.get("nibabel_stuff", {}).get("reoriented_affine")
    if turned is not None:
        change = ornt_transform(io_orientation(np.asarray(turned)), io_orientation(affine))
        array = _turned(array, change)
    difference = same_grid(label, Volume(array, affine, label.header))
    if difference is not None:
        raise InputError(f"{path}: its properties give {difference} as for {label.shape} of the label")
    return array


def _affine(properties: dict[str, Any]) -> NDArray[np.float64] | None:
    """The affine of the image that was predicted, from whichever reader's properties."""
    nibabel_stuff, sitk_stuff = properties.get("nibabel_stuff"), properties.get("sitk_stuff")
    if nibabel_stuff:
        return np.asarray(nibabel_stuff["original_affine"], dtype=np.float64)
    if not sitk_stuff or len(sitk_stuff["spacing"]) != 3:
        return None
    return affine_of(sitk_stuff["spacing"], sitk_stuff["origin"], sitk_stuff["direction"])
