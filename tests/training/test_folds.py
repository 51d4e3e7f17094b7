"""Cross-validation: every patient is left out once, and what is finished is kept."""

import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.data.layouts import write_nnunet

from crac.cli import main
from crac.data import Split, Store, prepare
from crac.errors import InputError
from crac.evaluation.folds import FoldCases
from crac.guarantees import Guarantees
from crac.guarantees.words import ESTIMATE
from crac.models.checkpoint import Checkpoint
from crac.models.ensemble import load
from crac.models.folds import Folds
from crac.models.guarantees import run_guarantees
from crac.models.model import Model
from crac.training import resume_folds, train_folds
from crac.training.log import Log


@pytest.fixture(scope="module")
def folds(store: Store, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two folds, trained one after the other by command; the first alone to begin with."""
    out = tmp_path_factory.mktemp("folds") / "out"
    settings = ["--recipe", "paper", "--width", "2", "--epochs", "1", "--batch-size", "16", "--accelerator", "cpu"]
    command = ["train", "--data", str(store.path), *settings, "--no-pictures", "--out", str(out), "--folds", "2"]
    assert main([*command, "--fold", "1"]) == 0
    assert not (out / "fold_0").exists()
    before = (out / "fold_1" / "last.safetensors").stat().st_mtime_ns
    assert main(["train", "--resume", str(out), "--jobs", "2"]) == 0
    assert (out / "fold_1" / "last.safetensors").stat().st_mtime_ns == before  # finished, so left alone
    return out


def test_a_damaged_fold_takes_no_other_along(
    folds: Path, store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = shutil.copytree(folds, tmp_path / "out")
    first, second = copy / "fold_0" / "last.safetensors", copy / "fold_1" / "best.safetensors"
    for file in (first, second):
        file.write_bytes(file.read_bytes()[:1000])
    assert main(["train", "--resume", str(copy)]) == 1
    said = capsys.readouterr()
    assert "crac train: fold_0: " in said.err
    assert "last.safetensors is damaged" in said.err
    assert "crac train: fold_1: " in said.err
    assert "best.safetensors is damaged" in said.err
    assert "next: crac calibrate" not in said.out


def test_folds_go_on_from_anywhere(
    folds: Path, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folds.parent)
    settings = ["--recipe", "paper", "--width", "2", "--epochs", "1", "--accelerator", "cpu", "--no-pictures"]
    begun = ["train", "--data", str(store.path), "--init", "out/fold_0", *settings, "--folds", "2"]
    assert main([*begun, "--out", str(tmp_path / "more"), "--fold", "0"]) == 0
    said = capsys.readouterr()
    assert "mean of 1 fold " in said.out
    assert "next:" not in said.out
    assert "not finished: fold_1" in said.err
    monkeypatch.chdir(tmp_path)
    assert main(["train", "--resume", str(tmp_path / "more")]) == 0
    assert "mean of 2 folds" in capsys.readouterr().out


def test_an_interrupted_cross_validation_says_so_to_the_shell(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = ["--recipe", "paper", "--width", "2", "--epochs", "2", "--accelerator", "cpu", "--no-pictures"]
    command = ["train", "--data", str(store.path), *settings, "--out", str(tmp_path / "cv")]
    assert main([*command, "--folds", "2", "--fold", "2"]) == 2
    assert not (tmp_path / "cv").exists()
    with monkeypatch.context() as patch:
        patch.setattr(Log, "step", lambda *_: os.kill(os.getpid(), signal.SIGINT))
        assert main([*command, "--folds", "2"]) == 130
    said = capsys.readouterr().err
    assert "fold_0 stopped" in said
    assert "not finished: fold_0, fold_1; continue with: crac train --resume" in said


def test_a_fold_that_was_trained_longer_is_finished(folds: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(folds, tmp_path / "out")
    assert main(["train", "--resume", str(copy / "fold_0"), "--epochs", "2"]) == 0
    assert resume_folds(copy).left == []


def test_every_patient_is_left_out_once(folds: Path, store: Store) -> None:
    splits = [Split.load(folds / f"fold_{number}" / "split.json", store.cases) for number in range(2)]
    assert sorted(splits[0].test + splits[1].test) == sorted(store.cases)
    for split in splits:
        patients = [
            {store.cases[name].patient for name in part} for part in (split.train, split.validation, split.test)
        ]
        assert not patients[2] & (patients[0] | patients[1])
    assert json.loads((folds / "folds.json").read_text())["test"] == {
        f"fold_{number}": split.test for number, split in enumerate(splits)
    }
    assert (folds / "fold_0.log").read_text().startswith("epoch 1/1")


def test_cases_are_predicted_by_the_fold_that_left_them_out(folds: Path, store: Store) -> None:
    loaded: list[str] = []

    def open_model(run: Path) -> Model:
        loaded.append(run.name)
        return Model.load(run, "cpu")

    cases = FoldCases(folds, open_model)
    assert sorted(cases.names) == sorted(store.cases)
    for number in range(2):
        name = Split.load(folds / f"fold_{number}" / "split.json").test[0]
        case = cases.load(name)
        own = Model.load(folds / f"fold_{number}", "cpu")
        other = Model.load(folds / f"fold_{1 - number}", "cpu")
        image = store.image(name).astype("float32")
        assert torch.equal(case.scores, own.logits(torch.from_numpy(image)))
        assert not torch.equal(case.scores, other.logits(torch.from_numpy(image)))
    assert loaded == ["fold_0", "fold_1"]


def test_calibrate_takes_the_folder(folds: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["calibrate", str(folds), "--method", "temperature", "--folds", "2", "--force", "--device", "cpu"]
    assert main([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["written"] == str(folds / "calibration.json")
    ensemble = load(folds, "cpu")
    assert ensemble.calibrator is not None
    assert ensemble.calibrator.name == "temperature"  # the mean of the folds takes it for its own
    (folds / "calibration.json").unlink()


def test_guarantees_rest_on_patients_left_out_and_say_what_that_is_for_the_mean(
    folds: Path, store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["guarantee", str(folds), "--alpha", "0.2", "--device", "cpu"]) == 0
    assert ESTIMATE in capsys.readouterr().out
    cases = FoldCases(folds, lambda run: Model.load(run, "cpu"), grid="native")
    expected = Guarantees(5, 0.2).fit(cases.load(name).for_guarantees for name in cases.names)
    found = run_guarantees(folds, load(folds, "cpu"))
    assert sorted(found.patients) == sorted({case.patient for case in store.cases.values()})
    torch.testing.assert_close(found.possible.thresholds, expected.possible.thresholds, equal_nan=True)
    torch.testing.assert_close(found.volume.above, expected.volume.above, equal_nan=True)
    assert main(["guarantee", str(folds), "--split", "test"]) == 2
    assert "--split goes with a single run" in capsys.readouterr().err

    image = next((store.path.parent / "raw" / "TrainingImg").glob("*.nii.gz"))
    command = ["predict", str(folds), str(image), "--out", str(tmp_path / "maps"), "--device", "cpu", "--json"]
    assert main(command) == 0
    said = capsys.readouterr()
    assert "an estimate and not a proof" in said.err
    (about,) = json.loads(said.out)
    assert (about["fitted_on"], about["patients"]) == ("out-of-fold", 8)
    assert len(about["volumes"]) == 4

    calibrate = ["calibrate", str(folds), "--method", "temperature", "--folds", "2", "--force", "--device", "cpu"]
    assert main(calibrate) == 0
    with pytest.raises(InputError, match=r"were fitted before calibration\.json was, or with another one"):
        run_guarantees(folds, load(folds, "cpu"))
    assert main(["guarantee", str(folds), "--alpha", "0.2", "--device", "cpu"]) == 0
    again = run_guarantees(folds, load(folds, "cpu"))
    assert (again.fitted["crossed"], sorted(again.patients)) == (5, sorted(found.patients))
    assert again.volume.above[1] != found.volume.above[1]
    with pytest.raises(InputError, match="were fitted on other weights"):
        run_guarantees(folds, load(folds, "cpu", checkpoint="last", calibrated=False))
    for name in ("calibration.json", "guarantees.json"):
        (folds / name).unlink()


def test_folds_that_leave_nobody_to_validate_are_refused_before_any_is_trained(small: Any, tmp_path: Path) -> None:
    three = prepare("nnunet", write_nnunet(tmp_path / "raw", [(8, 8, 8)] * 3), tmp_path / "store")
    with pytest.raises(InputError, match=r"a patient to train on and one to validate; 2 folds of 3 patients do not"):
        train_folds(small(data=three.path, epochs=1), tmp_path / "out", 2)
    assert not (tmp_path / "out").exists()
    assert all(len(split.validation) == 1 for split in Split.k_fold(three.cases, 3))


def test_settings_that_no_fold_can_train_with_leave_nothing(small: Any, tmp_path: Path) -> None:
    for settings, message in (
        ({"method": "ls", "method_options": {"alpha": 7}}, "alpha must be a number of at least 0 and of at most 1"),
        ({"init": tmp_path / "nowhere"}, "init must be a run or a checkpoint; .* holds none"),
    ):
        with pytest.raises(InputError, match=message):
            train_folds(small(epochs=1, **settings), tmp_path / "out", 2)
        assert not (tmp_path / "out").exists()
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"out cannot be written: Not a directory"):
        train_folds(small(epochs=1), tmp_path / "file" / "out", 2)


def test_other_settings_or_a_broken_fold_are_told(folds: Path, small: Any, store: Store, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"holds a cross-validation with other width.*: choose another --out"):
        train_folds(small(epochs=1, width=3), folds, 2)
    for settings, number, message in (
        ({"split": store.path / "split.json"}, 2, "split must not be given with folds"),
        ({"devices": 2}, 2, "folds are trained on one device each"),
        ({}, 1, "folds must be a whole number of at least 2; got 1"),
        ({}, 9, "folds must be between 2 and the 8 patients; got 9"),
    ):
        with pytest.raises(InputError, match=message):
            train_folds(small(**settings), tmp_path / "none", number)
    assert not (tmp_path / "none").exists()
    with pytest.raises(InputError, match=r"fold must be a whole number .* of at most 1; got 2"):
        train_folds(small(epochs=1), tmp_path / "some", 2, [2])
    assert not (tmp_path / "some").exists()
    train_folds(small(epochs=1), tmp_path / "some", 2, [1])
    with pytest.raises(InputError, match=r"fold_0 is not trained yet; crac train --resume"):
        Folds(tmp_path / "some").runs()
    (tmp_path / "some" / "fold_0").mkdir()
    (tmp_path / "some" / "fold_0" / "file").touch()
    result = resume_folds(tmp_path / "some")
    assert "is not an empty folder" in result.broken["fold_0"]
    assert list(result.dice) == ["fold_1"]
    assert result.left == ["fold_0"]
    assert "InputError" in (tmp_path / "some" / "fold_0.log").read_text()
    assert Checkpoint.read_info(tmp_path / "some" / "fold_1" / "best.safetensors")["dice"] == result.dice["fold_1"]
