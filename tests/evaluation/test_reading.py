"""Every way of storing probabilities gives the same array on the label's grid."""

import nibabel as nib
import numpy as np
import pytest
from tests.evaluation.stored import read_only_case

from crac.errors import InputError
from crac.evaluation.pairing import FilePair
from crac.evaluation.reading import load


@pytest.mark.parametrize("order", ["last", "first"])
def test_four_dimensional_nifti(scene, order):
    folder, labels, probabilities, affine = scene
    stored = probabilities if order == "last" else np.moveaxis(probabilities, 3, 0)
    nib.Nifti1Image(stored, affine).to_filename(folder / "case.nii.gz")
    np.testing.assert_array_equal(read_only_case(folder, labels), np.moveaxis(probabilities, 3, 0))


@pytest.mark.parametrize("pattern", ["case_{}.nii.gz", "case_class{}.nii", "case-p{:02}.nii.gz", "case_{:04}.nii.gz"])
def test_one_file_a_class(scene, pattern):
    folder, labels, probabilities, affine = scene
    for k in range(3):
        nib.Nifti1Image(probabilities[..., k], affine).to_filename(folder / pattern.format(k))
    np.testing.assert_array_equal(read_only_case(folder, labels), np.moveaxis(probabilities, 3, 0))


def test_cube_with_as_many_classes_as_voxels_is_ambiguous(tmp_path):
    nib.Nifti1Image(np.zeros((3, 3, 3), np.uint8), np.eye(4)).to_filename(tmp_path / "label.nii.gz")
    nib.Nifti1Image(np.full((3, 3, 3, 3), 1 / 3, np.float32), np.eye(4)).to_filename(tmp_path / "p.nii.gz")
    with pytest.raises(InputError, match="first axis or on the last"):
        load(FilePair("label", tmp_path / "label.nii.gz", (tmp_path / "p.nii.gz",)))
