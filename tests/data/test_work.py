"""The work on one case: a file that cannot be read is named."""

import gzip
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
from tests.data.layouts import write_nnunet

from crac.data import prepare
from crac.errors import ProblemsError


def test_a_label_beside_its_image_is_told_from_it(tmp_path: Path) -> None:
    raw = write_nnunet(tmp_path / "raw", [(20, 20, 20)] * 3)
    path = raw / "labelsTr" / "case1.nii.gz"
    label = nib.load(path)
    affine = label.affine.copy()
    affine[0, 3] += 30
    nib.Nifti1Image(np.asarray(label.dataobj), affine).to_filename(path)
    message = r"case1\.nii\.gz does not lie on its image case1_0000\.nii\.gz: it has an affine .* 30 mm elsewhere"
    with pytest.raises(ProblemsError, match=message):
        prepare("nnunet", raw, tmp_path / "store")


def test_a_gzip_that_was_cut_short_is_named(tmp_path: Path) -> None:
    raw = write_nnunet(tmp_path / "raw", [(20, 20, 20)] * 3)
    path = raw / "imagesTr" / "case1_0000.nii.gz"
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes())[:-500]))
    with pytest.raises(ProblemsError, match=r"case1_0000\.nii\.gz"):
        prepare("nnunet", raw, tmp_path / "store")
