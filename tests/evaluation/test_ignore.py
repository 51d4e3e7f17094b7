"""Voxels that nobody has labelled, from dataset.json to the losses, the measures and the calibrators."""

import json
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
import torch
from tests.data.layouts import write_nnunet

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
