"""Voxels that nobody has labelled, from dataset.json to the losses, the measures and the calibrators."""

import json
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
import torch
from tests.cli.foreign import write_folders
from tests.data.layouts import write_nnunet

import crac
from crac.cli import main
from crac.data import Split, Store, prepare
from crac.metrics import CalibrationMeter, dice
from crac.models.model import Model


@pytest.fixture(scope="module")
def ignoring(tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, Path]:
    """A store with a corner of every label ignored, and a split of its six cases."""
    folder = tmp_path_factory.mktemp("ignore")
    raw = write_nnunet(folder / "raw", [(32, 32, 4)] * 6)
    content = json.loads((raw / "dataset.json").read_text())
    content["labels"]["ignore"] = 2
    (raw / "dataset.json").write_text(json.dumps(content))
    for path in (raw / "labelsTr").iterdir():
        label = nib.load(path)
        array = np.asarray(label.dataobj).copy()
        array[:16, :16] = 2
        nib.Nifti1Image(array, label.affine).to_filename(path)
    store = prepare("nnunet", raw, folder / "store", dims=2)
    names = list(store.cases)
    Split(train=names[:2], validation=names[2:4], test=names[4:]).save(folder / "split.json")
    return store, folder


def test_the_store_keeps_them_apart_from_the_classes(ignoring: tuple[Store, Path]) -> None:
    store, _ = ignoring
    assert store.class_names == ("background", "box")
    assert store.ignore_index == Store.open(store.path).ignore_index == 255
    for name, case in store.cases.items():
        assert set(np.unique(store.label(name))) == {0, 1, 255}
        assert (store.original_label(name) == 255).sum() == 16 * 16 * 4
        assert case.voxels == tuple(int((store.original_label(name) == k).sum()) for k in range(2))
        assert case.prepared_voxels == tuple(int((store.label(name) == k).sum()) for k in range(2))
        assert case.cropped_away == 0


@pytest.mark.parametrize("method", ["crac", "ce"])
def test_training_evaluation_and_calibration_leave_them_out(
    ignoring: tuple[Store, Path], method: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store, folder = ignoring
    run = tmp_path / "run"
    arguments = ["--data", str(store.path), "--split", str(folder / "split.json"), "--out", str(run), "--width", "4"]
    arguments += ["--epochs", "2", "--accelerator", "cpu", "--no-pictures", "--method", method]
    assert main(["train", *arguments]) == 0
    row = json.loads((run / "last.json").read_text())["history"][-1]
    model = Model.load(run, "cpu", checkpoint="last")
    meter, scores = CalibrationMeter(2), []
    cases = Split.load(run / "split.json")
    for name in cases.validation:
        logits = model.logits(torch.from_numpy(np.array(store.image(name), dtype=np.float32)))
        labels = np.array(store.label(name)).astype(np.int64)
        known = labels != 255
        columns = logits[:, torch.from_numpy(known)]
        meter.update(logits=columns[None, :, None], labels=torch.from_numpy(labels[known])[None, None])
        scores.append(dice(columns.argmax(0).numpy(), labels[known], 2)[1])
    assert row["dice"] == pytest.approx(np.nanmean(scores), abs=1e-6)
    assert row["ece"] == pytest.approx(meter.compute().ece, abs=1e-6)
    assert np.isfinite([row["train_loss"], row["validation_loss"]]).all()
    for protocol in ("paper", "clinical"):
        assert main(["evaluate", str(run), "--split", "validation", "--checkpoint", "last", "--protocol", protocol,
                     "--out", str(tmp_path / "audit")]) == 0  # fmt: skip
        summary = json.loads((tmp_path / "audit" / "summary.json").read_text())
        assert summary["settings"]["ignore_index"] == 255
        assert summary["per_volume"]["dsc"]["mean"] == pytest.approx(np.nanmean(scores), abs=1e-6)
        assert summary["pooled"]["label_foreground"]["ece"] == pytest.approx(meter.compute().ece, abs=1e-6)
    assert main(["calibrate", str(run), "--method", "temperature", "--force", "--folds", "2"]) == 0
    assert (run / "calibration.json").is_file()
    capsys.readouterr()
    assert main(["guarantee", str(run), "--alpha", "0.5", "--device", "cpu"]) == 0
    said = capsys.readouterr().out
    assert "box: its volume has no bounded interval: no calibration patient is labelled throughout" in said
    assert "50 % of it has a probability of at least" in said
    assert main(["evaluate", str(run), "--out", str(tmp_path / "audit")]) == 0
    promised = json.loads((tmp_path / "audit" / "summary.json").read_text())["guarantees"]["by_class"]["box"]
    assert promised["volume"]["patients"] == 0
    assert promised["possible"]["patients"] == 2


def test_folders_leave_them_out_as_runs_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    probabilities, labels = write_folders(tmp_path, cases=10)
    cases = []
    for path in sorted(labels.iterdir()):
        label = nib.load(path)
        array = np.asarray(label.dataobj).copy()
        if path.name != "case_00.nii.gz":
            array[:6] = 9
        nib.Nifti1Image(array, label.affine).to_filename(path)
        stored = np.moveaxis(np.asarray(nib.load(probabilities / path.name).dataobj), 3, 0)
        cases.append(crac.Case(stored, array, label.header.get_zooms(), ignore_index=9))
    given = ["--probabilities", str(probabilities), "--labels", str(labels)]
    commands = {
        "guarantee": ["--alpha", "0.2", "--jobs", "1", "--out", str(tmp_path / "guarantees.json")],
        "calibrate": ["--method", "temperature", "--mask", "all", "--out", str(tmp_path / "calibration.json")],
        "evaluate": ["--mask", "all", "--jobs", "1", "--out", str(tmp_path / "audit")],
    }
    for name, options in commands.items():
        assert main([name, *given, *options]) == 2
        assert "labels must lie in 0..2" in capsys.readouterr().err
        assert main([name, *given, *options, "--ignore-index", "1"]) == 2
        assert main([name, *given, *options, "--ignore-index", "9"]) == 0

    found = crac.load_guarantees(tmp_path / "guarantees.json")
    np.testing.assert_array_equal(found.possible.thresholds, crac.RiskControl(3, 0.2).fit(cases).thresholds)
    assert found.volume.reasons[1].startswith("1 calibration patient cannot promise")
    known = [case.labels != 9 for case in cases]
    calibrator = crac.load_calibrator(tmp_path / "calibration.json")
    plain = crac.build_calibrator("temperature", 3)

    def batches():
        for case, here in zip(cases, known, strict=True):
            columns = torch.from_numpy(case.probabilities[:, here])[None, :, None]
            yield columns, torch.from_numpy(case.labels[here].astype(np.int64))[None, None]

    plain.fit(batches, mask="all", weight="volume", from_probabilities=True)
    torch.testing.assert_close(calibrator.weights, plain.weights, rtol=1e-4, atol=0)
    summary = json.loads((tmp_path / "audit" / "summary.json").read_text())
    assert summary["settings"]["ignore_index"] == 9
    meter = CalibrationMeter(3, mask="all")
    for columns, truth in batches():
        meter.update(probabilities=columns, labels=truth)
    assert summary["pooled"]["all"]["ece"] == pytest.approx(meter.compute().ece, abs=1e-6)


def test_the_ignored_label_of_folders_is_no_class(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    probabilities, labels = write_folders(tmp_path, cases=2)
    given = ["--probabilities", str(probabilities), "--labels", str(labels), "--out", str(tmp_path / "out.json")]
    assert main(["guarantee", *given, "--jobs", "1", "--ignore-index", "2"]) == 2
    assert "ignore_index must be none of the classes, which are 0..2; got 2" in capsys.readouterr().err
    assert main(["evaluate", "runs/one", "--out", str(tmp_path / "audit"), "--ignore-index", "2"]) == 2
    assert "--ignore-index goes with --probabilities" in capsys.readouterr().err
