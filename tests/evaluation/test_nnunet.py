"""Archives of nnU-Net: turned as its readers turn them, and refused when they are something else."""

import os
import pickle

import nibabel as nib
import numpy as np
import pytest
import SimpleITK
from nibabel.orientations import apply_orientation, inv_ornt_aff, io_orientation
from tests.evaluation.stored import SHAPE, read_only_case

from crac.errors import InputError
from crac.evaluation.pairing import FilePair, find_pairs
from crac.evaluation.reading import load


def simpleitk_properties(path):
    """What nnU-Net's SimpleITK reader takes from the image, by SimpleITK itself."""
    image = SimpleITK.ReadImage(str(path))
    stuff = {"spacing": image.GetSpacing(), "origin": image.GetOrigin(), "direction": image.GetDirection()}
    return SimpleITK.GetArrayFromImage(image), {
        "sitk_stuff": stuff,
        "spacing": np.abs(image.GetSpacing()[::-1]).tolist(),
    }


def nibabel_properties(path, turn):
    """What nnU-Net's two nibabel readers take from the image."""
    image = nib.load(path)
    stuff = {"original_affine": image.affine}
    if turn:
        image = image.as_reoriented(io_orientation(image.affine))
        stuff["reoriented_affine"] = image.affine
    spacing = [float(size) for size in image.header.get_zooms()[::-1]]
    return np.asarray(image.dataobj).transpose(2, 1, 0), {"nibabel_stuff": stuff, "spacing": spacing}


READERS = {
    "simpleitk": simpleitk_properties,
    "nibabel": lambda path: nibabel_properties(path, turn=False),
    "nibabel_turned": lambda path: nibabel_properties(path, turn=True),
}


@pytest.mark.parametrize("reader", READERS)
def test_nnunet_archive(scene, reader, tmp_path):
    """The array as each of nnU-Net's readers orders it, with and without its properties beside it."""
    folder, labels, probabilities, affine = scene
    channels = []
    for k in range(3):
        nib.Nifti1Image(probabilities[..., k], affine).to_filename(tmp_path / "image.nii.gz")
        array, properties = READERS[reader](tmp_path / "image.nii.gz")
        channels.append(array)
    np.savez_compressed(folder / "case.npz", probabilities=np.stack(channels).astype(np.float16))
    (folder / "case.pkl").write_bytes(pickle.dumps(properties))
    found = read_only_case(folder, labels)
    np.testing.assert_allclose(found, np.moveaxis(probabilities, 3, 0), atol=1e-3)
    (folder / "case.pkl").unlink()
    segmentation = probabilities.argmax(-1).astype(np.uint8)
    nib.Nifti1Image(segmentation, affine).to_filename(folder / "case.nii.gz")
    np.testing.assert_array_equal(read_only_case(folder, labels), found)


@pytest.mark.parametrize("codes", ["RAS", "LPS", "PIR"])
@pytest.mark.parametrize("turned", [False, True])
def test_a_cube_without_properties_is_refused_unless_told(tmp_path, codes, turned):
    """In a cube every orientation fits: only what lies beside the archive, or the user, can tell."""
    rng = np.random.default_rng(0)
    labels, folder = tmp_path / "labels", tmp_path / "probabilities"
    labels.mkdir()
    folder.mkdir()
    probabilities = rng.dirichlet(np.ones(3), size=(6, 6, 6)).astype(np.float32)
    affine = np.linalg.inv(nib.orientations.inv_ornt_aff(nib.orientations.axcodes2ornt(codes), (6, 6, 6)))
    nib.Nifti1Image(probabilities.argmax(-1).astype(np.uint8), affine).to_filename(labels / "case.nii.gz")
    stored = apply_orientation(probabilities, io_orientation(affine)) if turned else probabilities
    np.savez(folder / "case.npz", probabilities=stored.transpose(3, 2, 1, 0))
    (case,), _ = find_pairs(folder, labels)
    if codes == "RAS":
        np.testing.assert_array_equal(load(case).probabilities, np.moveaxis(probabilities, 3, 0))
        return
    with pytest.raises(
        InputError, match=rf"orientation cannot be known: the label lies in {codes}, and only case\.pkl"
    ):
        load(case)
    (case,), _ = find_pairs(folder, labels, "ras" if turned else "stored")
    np.testing.assert_array_equal(load(case).probabilities, np.moveaxis(probabilities, 3, 0))
    # nnU-Net's own segmentation tells as well.
    nib.Nifti1Image(probabilities.argmax(-1).astype(np.uint8), affine).to_filename(folder / "case.nii.gz")
    (case,), _ = find_pairs(folder, labels)
    np.testing.assert_array_equal(load(case).probabilities, np.moveaxis(probabilities, 3, 0))


def test_turned_array_differs_from_the_files(scene):
    """Guards the test above: for the flipped image, turning is not the identity."""
    _, _, probabilities, affine = scene
    turned = apply_orientation(probabilities, io_orientation(affine))
    same = turned.shape == probabilities.shape and np.array_equal(turned, probabilities)
    assert same == bool((inv_ornt_aff(io_orientation(affine), SHAPE) == np.eye(4)).all())


class Payload:
    def __reduce__(self):
        return os.mkdir, ("pwned",)


def test_a_pickle_that_would_run_code_is_refused_and_does_not_run(scene, monkeypatch, tmp_path):
    folder, labels, probabilities, _ = scene
    monkeypatch.chdir(tmp_path)
    np.savez(folder / "case.npz", probabilities=probabilities.transpose(3, 2, 1, 0))
    (folder / "case.pkl").write_bytes(pickle.dumps({"spacing": Payload()}))
    (case,), _ = find_pairs(folder, labels)
    with pytest.raises(InputError, match="only numbers, text and arrays"):
        load(case)
    assert not (tmp_path / "pwned").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda p: {"probabilities": p.transpose(3, 0, 1, 2)}, r"looks like \(K, x, y, z\)"),
        (lambda p: {"probabilities": p.transpose(3, 2, 1, 0)[:, 1:]}, "does not fit"),
        (lambda p: {"softmax": p}, "no array 'probabilities'"),
        (lambda p: {"probabilities": p.argmax(-1)}, "floats"),
        (lambda p: {"probabilities": np.array([{"a": 1}], dtype=object)}, "not an .npz of numbers"),
    ],
)
def test_bad_archives(scene, change, message):
    folder, labels, probabilities, _ = scene
    np.savez(folder / "case.npz", **change(probabilities))
    with pytest.raises(InputError, match=message):
        load(FilePair("case", labels / "case.nii.gz", (folder / "case.npz",)))


def test_properties_of_another_image_are_refused(scene):
    folder, labels, probabilities, affine = scene
    np.savez(folder / "case.npz", probabilities=probabilities.transpose(3, 2, 1, 0))
    (case,), _ = find_pairs(folder, labels)
    for properties in (
        {"spacing": [9.0, 9.0, 9.0]},
        {"spacing": [3.0, 1.2, 0.8], "nibabel_stuff": {"original_affine": affine + np.eye(4, k=3) * 30}},
        ["not", "properties"],
    ):
        (folder / "case.pkl").write_bytes(pickle.dumps(properties))
        with pytest.raises(InputError, match="case"):
            load(case)
