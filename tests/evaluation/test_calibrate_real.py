"""A hippocampus network trained briefly with Dice and cross-entropy: patients left out gain by calibration."""

import json
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import pytest

import crac
from crac.cli import main
from crac.data import Split, Store

CASES, TRAINED, VALIDATED = 17, 8, 8


@pytest.mark.realdata
@pytest.mark.slow
def test_a_run_and_its_files(real_data: Path, tmp_path: Path, capsys: Any) -> None:
    source, raw = real_data / "Dataset004_Hippocampus", tmp_path / "raw"
    for name in ("imagesTr", "labelsTr"):
        (raw / name).mkdir(parents=True)
        for path in sorted((source / name).glob("*.nii.gz"))[:CASES]:
            (raw / name / path.name).symlink_to(path)
    description = json.loads((source / "dataset.json").read_text()) | {"numTraining": CASES}
    (raw / "dataset.json").write_text(json.dumps(description))
    assert main(["prepare", "nnunet", str(raw), str(tmp_path / "store"), "--dims", "2"]) == 0
    names = list(Store.open(tmp_path / "store").cases)
    parts = names[:TRAINED], names[TRAINED : TRAINED + VALIDATED], names[TRAINED + VALIDATED :]
    Split(train=parts[0], validation=parts[1], test=parts[2]).save(tmp_path / "split.json")
    run = tmp_path / "run"
    settings = ["--backbone", "nnunet", "--width", "8", "--epochs", "4", "--batch-size", "32", "--accelerator", "cpu"]
    settings += ["--method", "ce", "--method-options", "dice_weight=3.0", "--learning-rate", "5e-3"]
    places = ["--data", str(tmp_path / "store"), "--split", str(tmp_path / "split.json"), "--out", str(run)]
    assert main(["train", *places, *settings]) == 0
    capsys.readouterr()
    assert main(["calibrate", str(run), "--device", "cpu", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    gains = {gain["measure"]: gain for gain in found["gains"]["class_region"]}
    assert found["calibrator"] == "class_region"
    for measure in ("nll[band]", "ece[band]"):
        assert gains[measure]["after"] < gains[measure]["before"]
    assert gains["nll[band]"]["difference"][2] < 0  # the whole interval over patients

    # The same from files, as somebody with a foreign model has them: predict, fit, apply, audit.
    labels, images = tmp_path / "labels", tmp_path / "images"
    for folder, name in ((images, "imagesTr"), (labels, "labelsTr")):
        folder.mkdir()
        for case in parts[1]:
            for path in (source / name).glob(f"{case}*.nii.gz"):
                (folder / path.name).symlink_to(path)
    plain = ["--out", str(tmp_path / "maps"), "--device", "cpu", "--no-calibration"]
    assert main(["predict", str(run), str(images), *plain]) == 0
    files = ["--probabilities", str(tmp_path / "maps"), "--labels", str(labels)]
    arguments = ["--regions", "slice", "--out", str(tmp_path / "c.json"), "--json"]
    capsys.readouterr()
    assert main(["calibrate", *files, *arguments]) == 0
    found = json.loads(capsys.readouterr().out)
    gains = {gain["measure"]: gain for gain in found["gains"]["class_region"]}
    assert found["calibrator"] == "class_region"
    assert gains["nll[band]"]["difference"][2] < 0
    assert gains["ece[band]"]["after"] < gains["ece[band]"]["before"]
    assert crac.load_calibrator(tmp_path / "c.json").fitted["batches"] == VALIDATED
    out = tmp_path / "calibrated"
    assert main(["apply", str(tmp_path / "c.json"), "--probabilities", str(tmp_path / "maps"), "--out", str(out)]) == 0
    for path in sorted(out.glob("*_probabilities.nii.gz")):
        before, after = (np.asarray(nib.load(place / path.name).dataobj) for place in (tmp_path / "maps", out))
        np.testing.assert_array_equal(before.argmax(-1), after.argmax(-1))
        assert np.abs(after - before).max() > 0.01
