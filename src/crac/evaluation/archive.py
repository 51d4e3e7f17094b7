"""Archives of arrays, whose headers are checked before memory is taken for them."""

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crac.data.nifti import GZIP_LIMIT
from crac.errors import InputError


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Return the arrays of an ``.npz`` by name; a damaged one is an :class:`InputError`."""
    try:
        check_sizes(path)
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except InputError:
        raise
    except Exception as error:  # a damaged archive raises a dozen unrelated types from numpy, zipfile and zlib
        raise InputError(f"{path} is damaged: {error}") from error


def check_sizes(path: Path) -> None:
    """Refuse an ``.npz`` in which an array promises more than the file can hold, before memory is asked for.

    Raises:
        InputError: Such an array; what is no archive at all raises numpy's and zipfile's own errors.
    """
    most = path.stat().st_size * GZIP_LIMIT
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            if not member.filename.endswith(".npy"):
                continue
            with archive.open(member) as file:
                version = np.lib.format.read_magic(file)
                read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
                shape, _, dtype = read(file)
            promised = int(np.prod(shape, dtype=object)) * dtype.itemsize
            if promised > min(member.file_size, most) and dtype.kind != "O":
                raise InputError(
                    f"{path} is damaged: its header promises {promised} bytes, the archive has {member.file_size}"
                )
