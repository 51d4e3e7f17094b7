"""Guarantees of a run: tied to its weights and calibration, measured on its test patients, on phantoms."""

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import pytest

import crac
from crac.calibration import build_calibrator
from crac.cli import main
from crac.data import Split, phantom, prepare
from crac.errors import InputError
from crac.evaluation.guarantees import guarantee_run
from crac.evaluation.run import RunCases
from crac.files import sha256
from crac.models.guarantees import GUARANTEES, run_guarantees
from crac.models.model import CALIBRATION, Model
from crac.training import TrainConfig, train


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A network trained briefly; eight patients validate."""
    folder = tmp_path_factory.mktemp("guarantee")
    phantom.abdominal(folder / "raw", patients=16, size=48, slices=6)
    store = prepare("flare", folder / "raw", folder / "store", spacing=(40.0, 8.0, 8.0), crop=(4, 48, 48))
    names = list(store.cases)
    Split(train=names[:4], validation=names[4:12], test=names[12:]).save(folder / "split.json")
    settings = {"data": store.path, "split": folder / "split.json", "method": "ce", "accelerator": "cpu",
                "backbone": "nnunet", "width": 4, "epochs": 2, "batch_size": 4, "learning_rate": 1e-2,
                "pictures": False}  # fmt: skip
    return train(TrainConfig.make(settings), folder / "run").run


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "run"))


def test_fitted_on_the_validation_part_and_measured_on_the_test_part(run: Path, tmp_path: Path, capsys: Any) -> None:
    assert main(["guarantee", str(run), "--alpha", "0.2", "--device", "cpu"]) == 0
    assert f"written to {run / GUARANTEES}" in capsys.readouterr().out
    model = Model.load(run, "cpu")
    found = run_guarantees(run, model)
    assert found is not None
    assert found.class_names == list(model.card.class_names)
    split = json.loads((run / "split.json").read_text())
    assert found.patients == split["validation"]
    cases = RunCases.of(run, model, "validation", None, "native")
    first = cases.load(cases.names[0])
    assert first.probabilities.shape[1:] == first.labels.shape  # the grid that crac predict writes on
    for more, there in (([], True), (["--no-guarantees"], False)):
        out = tmp_path / f"audit{there}"
        assert main(["evaluate", str(run), "--out", str(out), "--device", "cpu", *more]) == 0
        summary = json.loads((out / "summary.json").read_text())
        assert ("guarantees" in summary) == there
        assert (out / "guarantees.csv").is_file() == there
    assert json.loads((tmp_path / "auditTrue" / "summary.json").read_text())["guarantees"]["patients"] == 4


def test_predict_writes_what_is_promised(run: Path, tmp_path: Path, capsys: Any) -> None:
    assert main(["guarantee", str(run), "--alpha", "0.2", "--device", "cpu"]) == 0
    image = write_image(tmp_path / "image.nii.gz")
    capsys.readouterr()
    for folder, more, there in (("maps", [], True), ("plain", ["--no-guarantees"], False)):
        arguments = ["predict", str(run), str(image), "--out", str(tmp_path / folder), "--device", "cpu", "--json"]
        assert main([*arguments, *more]) == 0
        said = capsys.readouterr()
        (about,) = json.loads(said.out)
        assert about["image"] == "image"
        assert any(name.endswith("_volumes.csv") for name in about["files"]) == there
        assert all(Path(name).is_file() for name in about["files"])
        assert ("look" in about) == there
    assert main([*arguments[:2], str(image), "--out", str(tmp_path / "maps"), "--device", "cpu"]) == 0
    said = capsys.readouterr().out
    assert said.count("80 % interval from") == 4
    about = json.loads((tmp_path / "maps" / "image_review.json").read_text())
    assert (about["fitted_on"], about["patients"]) == ("validation", 8)
    assert bool(about["reason"]) == about["look"]
    found = run_guarantees(run, Model.load(run, "cpu"))
    volumes = found.volume.predict(Model.load(run, "cpu").predict(image).probabilities, (8, 8, 40))
    for row, expected in zip(about["volumes"], volumes[1:], strict=True):
        ends = [np.inf if row[end] is None else row[end] for end in ("estimate_ml", "low_ml", "high_ml")]
        np.testing.assert_allclose(ends, expected, rtol=1e-4)
        assert row["level"] == 0.8


def write_image(path: Path) -> Path:
    array = np.random.default_rng(0).normal(size=(48, 48, 6)).astype(np.float32)
    nib.Nifti1Image(array, np.diag([8.0, 8.0, 40.0, 1.0])).to_filename(path)
    return path


def test_guarantees_of_other_probabilities_are_refused(run: Path, tmp_path: Path) -> None:
    plain = Model.load(run, "cpu")
    assert run_guarantees(run, plain) is None
    guarantee_run(run, plain, 0.2)
    mirrored = Model.load(run, "cpu", mirror=True)
    with pytest.raises(InputError, match="were fitted without mirrored versions of the images"):
        run_guarantees(run, mirrored)
    calibrator = build_calibrator("temperature", len(plain.card.class_names))
    calibrator.fitted = {"checkpoint_sha256": sha256(run / "best.safetensors"), "mirror": False}
    calibrator.save(run / CALIBRATION)
    calibrated = Model.load(run, "cpu")
    with pytest.raises(InputError, match=r"were fitted before calibration\.json was, or with another one: run crac g"):
        run_guarantees(run, calibrated)
    guarantee_run(run, calibrated, 0.2)
    assert run_guarantees(run, calibrated) is not None
    with pytest.raises(InputError, match="were fitted on calibrated probabilities, and these are not"):
        run_guarantees(run, plain)
    calibrator.weights.fill_(0.5)
    calibrator.save(run / CALIBRATION)
    with pytest.raises(InputError, match="or with another one"):
        run_guarantees(run, Model.load(run, "cpu"))
    (run / CALIBRATION).unlink()
    guarantee_run(run, plain, 0.2)
    with pytest.raises(InputError, match="were fitted on other weights"):
        run_guarantees(run, Model.load(run, "cpu", checkpoint="last"))


def test_patients_who_fitted_the_calibrator_are_calibrated_by_one_fitted_on_others(run: Path, capsys: Any) -> None:
    calibrate = ["calibrate", str(run), "--method", "class", "--mask", "all", "--force", "--folds", "2"]
    assert main([*calibrate, "--device", "cpu"]) == 0
    assert main(["guarantee", str(run), "--alpha", "0.2", "--device", "cpu"]) == 0
    said = capsys.readouterr().out
    assert "so each was calibrated by another one here, fitted on the others" in said
    assert "Patients whom nothing has seen give one: --split test." in said
    model = Model.load(run, "cpu")
    found = run_guarantees(run, model)
    assert found is not None
    assert found.fitted["crossed"] == 5

    plain = RunCases.of(run, Model.load(run, "cpu", calibrated=False), "validation")
    loaded = {name: plain.load(name) for name in plain.names}
    volumes = crac.VolumeInterval(found.num_classes, 0.2)
    for group in range(5):
        names = plain.names[group::5]
        own = build_calibrator("class", found.num_classes, regions="slice")
        others = [case for name, case in loaded.items() if name not in names]
        own.fit(lambda: ((c.scores.movedim(1, 0), c.labels) for c in others), mask="all", weight="volume")  # noqa: B023
        cases = RunCases.of(run, dataclasses.replace(model, calibrator=own), "validation", None, "native")
        for name in names:
            volumes.update(cases.load(name).for_guarantees)
    np.testing.assert_allclose(found.volume.above, volumes.solve().above, rtol=1e-5)
    np.testing.assert_allclose(found.volume.below, volumes.below, rtol=1e-5)
    shared = crac.VolumeInterval(found.num_classes, 0.2)
    calibrated = RunCases.of(run, model, "validation", None, "native")
    shared.fit(calibrated.load(name).for_guarantees for name in calibrated.names)
    assert not np.allclose(found.volume.above[1:], shared.above[1:], rtol=1e-5)  # it matters

    assert main(["guarantee", str(run), "--split", "test", "--alpha", "0.2", "--device", "cpu"]) == 0
    assert "is no proof" not in capsys.readouterr().out
    assert "crossed" not in run_guarantees(run, model).fitted


def test_a_single_patient_who_fitted_the_calibrator_promises_nothing(run: Path, capsys: Any) -> None:
    calibrate = ["calibrate", str(run), "--method", "temperature", "--force", "--folds", "2", "--device", "cpu"]
    assert main(calibrate) == 0
    split = Split.load(run / "split.json")
    Split(train=split.train, validation=split.validation[:1], test=split.test).save(run / "split.json")
    assert main(["guarantee", str(run), "--alpha", "0.2", "--device", "cpu"]) == 0
    said = capsys.readouterr().out
    assert "1 calibration patient cannot promise a risk of 0.2; at least 4 are needed" in said
    assert "has a probability of at least" not in said


def test_training_patients_cannot_promise_anything(run: Path) -> None:
    with pytest.raises(InputError, match="split must be one of validation, test; got 'train'"):
        guarantee_run(run, Model.load(run, "cpu"), split="train")


def test_a_run_is_a_folder_and_keeps_its_own(run: Path, capsys: Any) -> None:
    assert main(["guarantee", str(run / "best.safetensors")]) == 2
    assert "RUN must be the folder of a run" in capsys.readouterr().err
    assert main(["guarantee", str(run), "--out", "g.json"]) == 2
    assert "--out goes with --probabilities; RUN has its own" in capsys.readouterr().err
    assert main(["guarantee", str(run), "--jobs", "2", "--patient", "p"]) == 2
    assert "--patient, --jobs go with --probabilities" in capsys.readouterr().err
    assert main(["evaluate", str(run), "--out", "audit", "--guarantees", "g.json"]) == 2
    assert "--guarantees goes with --probabilities" in capsys.readouterr().err
