"""A run measured on its own split, on the grid it was trained on and on that of its images."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import torch

import crac
from crac.cli import main
from crac.data import Store
from crac.evaluation.run import evaluate_run


def rows(folder: Path) -> dict[str, dict[str, str]]:
    with (folder / "per_volume.csv").open() as file:
        return {row["volume"]: row for row in csv.DictReader(file)}


def test_evaluate_is_the_networks_own_prediction_measured(run: Path, store: Store, tmp_path: Path) -> None:
    assert main(["evaluate", str(run), "--split", "test", "--out", str(tmp_path / "audit"), "--device", "cpu"]) == 0
    summary = json.loads((tmp_path / "audit" / "summary.json").read_text())
    assert summary["source"] == {"run": str(run), "split": "test", "checkpoint": "best"}
    settings = summary["settings"]
    assert [settings[name] for name in ("name", "unit", "empty", "grid", "regions")] == [
        *("paper", "voxel", "diagonal", "prepared", "slice"),
    ]
    (name,) = store.split().test
    model = crac.load(run)
    probabilities = model.predict_prepared(torch.from_numpy(np.array(store.image(name), dtype=np.float32)))
    labels = torch.from_numpy(np.array(store.label(name)))
    dice = crac.dice(probabilities.argmax(0), labels, store.num_classes)[1:]
    assert summary["per_volume"]["dsc"]["mean"] == pytest.approx(float(np.nanmean(dice)))
    meter = crac.CalibrationMeter(store.num_classes)
    meter.update(probabilities=probabilities.transpose(0, 1), labels=labels)
    assert summary["per_volume"]["ece[label_foreground]"]["mean"] == pytest.approx(meter.compute().ece)
    inner = summary["per_volume"]["ece.inner[label_foreground]"]["mean"]
    assert inner == pytest.approx(meter.compute().by_region["inner"].ece)  # regions of the slices it was trained on


def test_clinical_is_what_an_audit_of_the_predicted_maps_gives(run: Path, store: Store, tmp_path: Path) -> None:
    raw, names = store.path.parent / "raw", store.split().test
    images = [str(raw / "TrainingImg" / f"{name}_0000.nii.gz") for name in names]
    assert main(["predict", str(run), *images, "--out", str(tmp_path / "maps"), "--device", "cpu"]) == 0
    (tmp_path / "labels").mkdir()
    for name in names:
        (tmp_path / "labels" / f"{name}.nii.gz").symlink_to(raw / "TrainingMask" / f"{name}.nii.gz")
    command = ["evaluate", "--probabilities", str(tmp_path / "maps"), "--labels", str(tmp_path / "labels")]
    assert main([*command, "--out", str(tmp_path / "files"), "--jobs", "1", "--regions", "slice", "--class-names",
                 *store.class_names]) == 0  # fmt: skip
    assert main(["evaluate", str(run), "--protocol", "clinical", "--out", str(tmp_path / "run")]) == 0
    files, own = rows(tmp_path / "files"), rows(tmp_path / "run")
    assert files.keys() == own.keys() == set(names)
    for name in names:
        for column, value in files[name].items():
            if column not in ("volume", "patient"):
                assert float(own[name][column]) == pytest.approx(float(value), rel=1e-4, abs=1e-6, nan_ok=True), column
    labels = crac.load(run, "cpu").predict(images[0]).labels
    expected = crac.dice(labels, store.original_label(names[0]), store.num_classes)[1:]
    assert float(own[names[0]]["dsc"]) == pytest.approx(float(np.nanmean(expected)))


def test_processes_measure_a_run_alike(run: Path) -> None:
    model = crac.load(run, "cpu")
    alone, shared = (evaluate_run(run, model, "train", jobs=jobs) for jobs in (1, 2))
    assert [row["volume"] for row in shared.rows] == [row["volume"] for row in alone.rows]
    for one, two in zip(alone.rows, shared.rows, strict=True):  # other numbers of threads round differently
        for column in alone.columns:
            assert two[column] == pytest.approx(one[column], rel=1e-4, abs=1e-6, nan_ok=True), column
