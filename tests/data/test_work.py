"""The work on one case: a file that cannot be read is named."""

import gzip
from pathlib import Path

import pytest
from tests.data.layouts import write_nnunet

from crac.data import prepare
from crac.errors import ProblemsError


def test_a_gzip_that_was_cut_short_is_named(tmp_path: Path) -> None:
    raw = write_nnunet(tmp_path / "raw", [(20, 20, 20)] * 3)
    path = raw / "imagesTr" / "case1_0000.nii.gz"
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes())[:-500]))
    with pytest.raises(ProblemsError, match=r"case1_0000\.nii\.gz"):
        prepare("nnunet", raw, tmp_path / "store")
