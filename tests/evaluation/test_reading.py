"""Every way of storing probabilities gives the same array on the label's grid."""

import re

import nibabel as nib
import numpy as np
import pytest
from tests.evaluation.stored import read_only_case

from crac.errors import InputError
from crac.evaluation.pairing import FilePair, find_pairs
from crac.evaluation.reading import inspect, load


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


@pytest.mark.parametrize("name", ["case", "case_1", "case_probabilities"])
def test_the_foreground_alone_is_enough_for_a_binary_task(tmp_path, name):
    labels, folder = tmp_path / "labels", tmp_path / "probabilities"
    labels.mkdir()
    folder.mkdir()
    foreground = np.random.default_rng(0).random((5, 6, 7)).astype(np.float32)
    nib.Nifti1Image((foreground > 0.5).astype(np.uint8), np.eye(4)).to_filename(labels / "case.nii.gz")
    path = folder / f"{name}.nii.gz"
    nib.Nifti1Image(foreground, np.eye(4)).to_filename(path)
    found = read_only_case(folder, labels)
    np.testing.assert_allclose(found, np.stack([1 - foreground, foreground]))
    for wrong, message in ((foreground * 3, r"which lies in 0\.\.1; got"), (foreground > 0.5, "a label map")):
        nib.Nifti1Image(np.asarray(wrong, dtype=np.float32), np.eye(4)).to_filename(path)
        (case,), _ = find_pairs(folder, labels)
        (problem,) = inspect(case).problems
        assert re.search(message, problem)


def test_a_model_that_finds_nothing_has_written_no_label_map(tmp_path):
    labels, folder = tmp_path / "labels", tmp_path / "probabilities"
    labels.mkdir()
    folder.mkdir()
    nib.Nifti1Image(np.eye(5, 6, dtype=np.uint8)[..., None], np.eye(4)).to_filename(labels / "case.nii.gz")
    nib.Nifti1Image(np.zeros((5, 6, 1), np.float32), np.eye(4)).to_filename(folder / "case.nii.gz")
    np.testing.assert_array_equal(read_only_case(folder, labels), np.stack([np.ones((5, 6, 1)), np.zeros((5, 6, 1))]))
