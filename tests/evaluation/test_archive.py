"""Archives of arrays that are damaged or promise too much."""

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest

from crac.errors import InputError
from crac.evaluation.archive import read_arrays


def test_arrays_come_back(tmp_path: Path) -> None:
    arrays = {"a": np.arange(6).reshape(2, 3), "b": np.array("text")}
    np.savez_compressed(tmp_path / "x.npz", **arrays)
    found = read_arrays(tmp_path / "x.npz")
    assert found.keys() == arrays.keys()
    assert all(np.array_equal(found[name], array) for name, array in arrays.items())


def test_a_header_that_promises_too_much_is_refused_before_memory_is_asked_for(tmp_path: Path) -> None:
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (2**40,)})
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("a.npy", header.getvalue())
    with pytest.raises(InputError, match=rf"x.npz is damaged: its header promises {8 * 2**40} bytes, the archive has"):
        read_arrays(tmp_path / "x.npz")


def test_what_is_no_archive_is_said(tmp_path: Path) -> None:
    (tmp_path / "x.npz").write_bytes(b"PK nothing")
    with pytest.raises(InputError, match=r"x\.npz is damaged: "):
        read_arrays(tmp_path / "x.npz")
