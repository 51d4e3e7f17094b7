"""What is written about a new image after ``crac guarantee``, against the guarantees themselves."""

import csv
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
from tests.models.blobs import RECIPES, threshold_model, write_blobs

import crac
from crac.models.predict import find_images, predict_images
from crac.models.promised import Promised, review


@pytest.fixture(scope="module", params=[20, 4])
def guarantees(request: pytest.FixtureRequest) -> crac.Guarantees:
    """Fitted on blobs whose labels are a little larger than what the model sees; on enough patients, and on too few."""
    rng = np.random.default_rng(0)
    cases = []
    for number in range(request.param):
        depth = 4 + rng.uniform(-1, 1) - np.linalg.norm(np.indices((12, 12, 12)) - 5.5, axis=0)
        second = 1 / (1 + np.exp(-2 * depth - rng.normal(0, 0.5, depth.shape)))
        cases.append(crac.Case(np.stack([1 - second, second]), (depth > -0.5).astype(int), (1.0,) * 3, str(number)))
    return crac.Guarantees(2, 0.1, class_names=["dark", "bright"]).fit(cases)


@pytest.mark.parametrize("recipe", ["stored", "resampled"])
def test_files_say_what_the_guarantees_say(guarantees: crac.Guarantees, recipe: str, tmp_path: Path) -> None:
    write_blobs(tmp_path / "case.nii.gz")
    model = threshold_model(RECIPES[recipe])
    output = Promised(guarantees)
    images = find_images([tmp_path / "case.nii.gz"], 1)
    found = predict_images(model, images, tmp_path / "out", outputs=[output])
    assert {path.name for path in found.written} == set(output.files("case"))
    image = nib.load(tmp_path / "case.nii.gz")
    probabilities = model.predict(tmp_path / "case.nii.gz").probabilities
    maps = {}
    for kind in ("possible", "certain"):
        file = nib.load(tmp_path / "out" / f"case_{kind}.nii.gz")
        np.testing.assert_array_equal(file.affine, image.affine)
        maps[kind] = np.moveaxis(np.asarray(file.dataobj), 3, 0)
        np.testing.assert_array_equal(maps[kind][1], getattr(guarantees, kind)(probabilities)[1])
    np.testing.assert_array_equal(maps["possible"][0], 1 - maps["certain"][1])
    np.testing.assert_array_equal(maps["certain"][0], 1 - maps["possible"][1])
    with (tmp_path / "out" / "case_volumes.csv").open() as file:
        (row,) = csv.DictReader(file)
    expected = guarantees.volume.predict(probabilities, image.header.get_zooms())[1]
    np.testing.assert_allclose([float(row[end]) for end in ("estimate_ml", "low_ml", "high_ml")], expected, rtol=1e-4)
    assert (row["class"], float(row["level"])) == ("bright", 0.9)
    assert ("at least 9 are needed" in row["note"]) == (len(guarantees.patients) < 9)
    look = guarantees.referral.predict(probabilities)
    about = review(tmp_path / "out", "case")
    assert (about["look"], about["reason"]) == (look.flagged, look.reason)
    assert about["fitted_on"] is None  # fitted on cases in memory
    again = predict_images(model, images, tmp_path / "out", outputs=[output])
    assert len(again.finished) == 4


def test_a_single_slice(guarantees: crac.Guarantees, tmp_path: Path) -> None:
    nib.Nifti1Image(np.random.default_rng(0).random((9, 8), dtype=np.float32), np.eye(4)).to_filename(
        tmp_path / "a.nii"
    )
    images = find_images([tmp_path / "a.nii"], 1)
    predict_images(threshold_model(RECIPES["stored"]), images, tmp_path / "out", outputs=[Promised(guarantees)])
    assert nib.load(tmp_path / "out" / "a_possible.nii.gz").shape == (9, 8, 1, 2)
