"""``crac nnunet calibrate`` and ``apply`` on the folder of a trained model; nnU-Net itself is not needed here."""

import json
import pickle
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import pytest
from tests.cli.foreign import AFFINE, overconfident

import crac
from crac.cli import main

DATASET = "Dataset004_Hippocampus"
CASES = 6


def archive(folder: Path, name: str, probabilities: np.ndarray) -> None:
    """As nnU-Net writes it."""
    folder.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(folder / f"{name}.npz", probabilities=probabilities.transpose(0, 3, 2, 1))
    (folder / f"{name}.pkl").write_bytes(pickle.dumps({"spacing": [3.0, 1.2, 1.0]}))
    nib.Nifti1Image(probabilities.argmax(0).astype(np.uint8), AFFINE).to_filename(folder / f"{name}.nii.gz")


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two folds of a 2-D configuration."""
    monkeypatch.setenv("nnUNet_raw", str(tmp_path / "raw"))
    monkeypatch.setenv("nnUNet_preprocessed", str(tmp_path / "preprocessed"))
    labels = tmp_path / "raw" / DATASET / "labelsTr"
    labels.mkdir(parents=True)
    folder = tmp_path / "results" / DATASET / "nnUNetTrainer__nnUNetPlans__2d"
    for number in range(CASES):
        probabilities, truth = overconfident(number)
        archive(folder / f"fold_{number % 2}" / "validation", f"case_{number:03d}", probabilities)
        nib.Nifti1Image(truth, AFFINE).to_filename(labels / f"case_{number:03d}.nii.gz")
    names = {"background": 0, "anterior": 1, "posterior": 2}
    (folder / "dataset.json").write_text(json.dumps({"labels": names, "file_ending": ".nii.gz"}))
    plans = {"dataset_name": DATASET, "configurations": {"2d": {"patch_size": [56, 40]}, "3d": {"patch_size": [8] * 3}}}
    (folder / "plans.json").write_text(json.dumps(plans))
    return folder


def test_the_folds_together_give_one_calibrator(model: Path, tmp_path: Path, capsys: Any) -> None:
    assert main(["nnunet", "calibrate", str(model), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["written"] == str(model / "calibration.json")
    assert found["gains"]["class_region"][0]["difference"][2] < 0
    assert "<th>posterior</th>" in (model / "calibration.html").read_text(encoding="utf-8")
    calibrator = crac.load_calibrator(model / "calibration.json")
    assert (calibrator.name, calibrator.regions) == ("class_region", "slice")
    assert calibrator.fitted["batches"] == CASES
    archive(tmp_path / "predicted", "new_001", overconfident(9)[0])
    places = ["--predictions", str(tmp_path / "predicted"), "--out", str(tmp_path / "calibrated")]
    assert main(["nnunet", "apply", str(model / "calibration.json"), *places]) == 0
    before, after = (
        np.load(tmp_path / place / "new_001.npz")["probabilities"] for place in ("predicted", "calibrated")
    )
    assert before.max(0).mean() > after.max(0).mean() + 0.05
    np.testing.assert_array_equal(before.argmax(0), after.argmax(0))
    assert (tmp_path / "calibrated" / "new_001.pkl").is_file()


def test_three_dimensional_models_and_labels_elsewhere(model: Path, tmp_path: Path, capsys: Any) -> None:
    labels = tmp_path / "raw" / DATASET / "labelsTr"
    elsewhere = tmp_path / "preprocessed" / DATASET / "gt_segmentations"
    elsewhere.parent.mkdir(parents=True)
    labels.rename(elsewhere)
    model = model.rename(model.with_name("nnUNetTrainer__nnUNetPlans__3d"))
    out = tmp_path / "c.json"
    assert main(["nnunet", "calibrate", str(model), "--out", str(out), "--method", "region", "--force"]) == 0
    assert crac.load_calibrator(out).regions == "volume"
    assert not (model / "calibration.json").exists()
    elsewhere.rename(tmp_path / "labels")
    assert main(["nnunet", "calibrate", str(model)]) == 2
    assert "name their folder with --labels" in capsys.readouterr().err
    places = ["--labels", str(tmp_path / "labels"), "--regions", "slice"]
    assert main(["nnunet", "calibrate", str(model), *places, "--compare", "--folds", "2"]) == 0
    assert "lowest likelihood loss" in capsys.readouterr().out


@pytest.mark.parametrize(("parent", "regions"), [("2d", "slice"), ("3d", "volume"), ("2d_more", "volume")])
def test_a_configuration_has_the_dimensions_of_the_one_it_inherits_from(
    model: Path, tmp_path: Path, parent: str, regions: str
) -> None:
    plans = json.loads((model / "plans.json").read_text())
    plans["configurations"] |= {"2d_more": {"inherits_from": "2d_most"}, "2d_most": {"inherits_from": parent}}
    (model / "plans.json").write_text(json.dumps(plans))
    model = model.rename(model.with_name("nnUNetTrainer__nnUNetPlans__2d_more"))
    out = tmp_path / "c.json"
    assert main(["nnunet", "calibrate", str(model), "--out", str(out), "--method", "region", "--force"]) == 0
    assert crac.load_calibrator(out).regions == regions


def test_ignored_voxels_do_not_count(model: Path, tmp_path: Path) -> None:
    names = {"background": 0, "anterior": 1, "posterior": 2, "ignore": 3}
    (model / "dataset.json").write_text(json.dumps({"labels": names, "file_ending": ".nii.gz"}))
    found = []
    for value in (3, 0):
        for path in (tmp_path / "raw" / DATASET / "labelsTr").iterdir():
            image = nib.load(path)
            truth = np.asarray(image.dataobj).copy()
            truth[:, :6] = value
            nib.Nifti1Image(truth, AFFINE).to_filename(path)
        assert main(["nnunet", "calibrate", str(model), "--method", "temperature", "--force"]) == 0
        found.append(crac.load_calibrator(model / "calibration.json"))
    assert found[0].fitted["voxels"] <= CASES * 20 * 12 * 8 < found[1].fitted["voxels"]
    assert found[0].temperature.item() == pytest.approx(3, rel=0.15)


def regions(model: Path) -> None:
    (model / "dataset.json").write_text(json.dumps({"labels": {"background": 0, "whole": [1, 2]}}))


def images(model: Path) -> None:
    (model / "dataset.json").write_text(json.dumps({"labels": {"background": 0}, "file_ending": ".png"}))


def no_npz(model: Path) -> None:
    for path in model.glob("fold_*/validation/*.npz"):
        path.unlink()


def twice(model: Path) -> None:
    archive(model / "fold_1" / "validation", "case_000", overconfident(0)[0])


def no_label(model: Path) -> None:
    archive(model / "fold_1" / "validation", "case_100", overconfident(0)[0])


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (regions, "calibration needs one label per voxel; got overlapping regions"),
        (images, "file_ending must be one of .nii.gz, .nii; got '.png'"),
        (no_npz, "nnUNetv2_train DATASET CONFIGURATION FOLD --val --npz"),
        (twice, "case_000 was validated in more than one fold"),
        (no_label, "case_100.npz has no label file"),
        (lambda model: (model / "plans.json").unlink(), "has no plans.json"),
        (lambda model: (model / "plans.json").write_text("[]"), "must hold a JSON object with 'configurations'"),
    ],
)
def test_what_cannot_be_calibrated_is_said(spoil: Any, message: str, model: Path, capsys: Any) -> None:
    spoil(model)
    assert main(["nnunet", "calibrate", str(model)]) == 2
    assert message in capsys.readouterr().err
    assert not (model / "calibration.json").exists()
