"""Data that nobody can learn from is called that, when it is prepared and when it is trained on."""

import json
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import pytest
from tests.data.layouts import write_nifti, write_nnunet

from crac.cli import main
from crac.data import Split, Store, prepare
from crac.data.notes import store_notes, training_notes


def change(raw: Path, case: int, **arrays: Any) -> None:
    """Give a case another image or label; both stay on their grid."""
    for folder, name in (("imagesTr", f"case{case}_0000"), ("labelsTr", f"case{case}")):
        path = raw / folder / f"{name}.nii.gz"
        if folder in arrays:
            old = nib.load(path)
            nib.Nifti1Image(arrays[folder](np.asarray(old.dataobj)), old.affine).to_filename(path)


def test_a_sound_data_set_has_no_notes(tmp_path: Path) -> None:
    store = prepare("nnunet", write_nnunet(tmp_path / "raw", [(12, 12, 8)] * 4), tmp_path / "store")
    assert store_notes(store) == []
    assert training_notes(store, store.split()) == []


def test_everything_odd_is_said_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    raw = write_nnunet(tmp_path / "raw", [(28, 28, 24)] * 5)
    about = json.loads((raw / "dataset.json").read_text())
    about["labels"] |= {"speck": 2, "nowhere": 3}
    (raw / "dataset.json").write_text(json.dumps(about))
    change(raw, 0, labelsTr=np.zeros_like)
    change(raw, 1, imagesTr=lambda image: np.full_like(image, 7))

    def speck(label: np.ndarray) -> np.ndarray:
        label = label.copy()
        label[0, 0, 0] = 2
        return label

    change(raw, 2, labelsTr=speck)
    for folder, name in (("imagesTr", "case3_0000"), ("labelsTr", "case3")):
        path = raw / folder / f"{name}.nii.gz"
        write_nifti(path, np.asarray(nib.load(path).dataobj), spacing=(1, 1, 500))
    arguments = ["prepare", "nnunet", str(raw), str(tmp_path / "store"), "--spacing", "4", "4", "4", "--jobs", "1"]
    assert main([*arguments, "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    store = Store.open(tmp_path / "store")
    assert summary["notes"] == store_notes(store) == [
        "1 of 5 images are constant in a channel once prepared: case1",
        "case3: voxels of 1 x 1 x 500 mm; is the spacing in the header right?",
        "1 of 5 cases have no labelled voxel: case0",
        "the class speck is lost in preparation, by resampling or by the crop, in 1 of the 1 cases that show it: case2",
        "no case shows the class nowhere",
    ]  # fmt: skip
    assert summary["voxels"]["speck"] == 1
    assert summary["prepared_voxels"]["speck"] == 0
    assert summary["prepared_voxels"]["box"] == sum((store.label(name) == 1).sum() for name in store.cases)
    split = Split(train=["case0", "case1"], validation=["case0"], test=["case2"])
    assert training_notes(store, split) == [
        "1 of 2 images are constant in a channel once prepared: case1",
        "no training case shows speck, nowhere: the network cannot learn it",
        "the validation part has no labelled voxel: neither Dice nor ECE can be measured, and the first epoch "
        "stays the best",
    ]


def test_a_channel_that_scaling_makes_constant_is_named(tmp_path: Path) -> None:
    raw = write_nnunet(tmp_path / "raw", [(12, 12, 8)] * 4, channels={"0": "CT", "1": "clicks"})
    for case in range(4):
        path = raw / "imagesTr" / f"case{case}_0001.nii.gz"
        clicks = np.zeros((12, 12, 8), dtype=np.float32)
        clicks[6, 6, : 3 + case] = 1  # of 1152 voxels, 6 are half a percent
        nib.Nifti1Image(clicks, nib.load(path).affine).to_filename(path)
    store = prepare("nnunet", raw, tmp_path / "store")
    empty = [name for name in store.cases if not store.image(name)[1].any()]
    assert empty == ["case0", "case1", "case2"]
    said = "3 of 4 images are constant in a channel once prepared: case0, case1, case2"
    assert store_notes(store) == [said]
    dark = store.manifest.recipe.intensity[0].model_copy(update={"low": 1000.0, "high": 2000.0})
    recipe = store.manifest.recipe.model_copy(update={"intensity": (dark, store.manifest.recipe.intensity[1])})
    other = prepare("nnunet", raw, tmp_path / "dark", recipe=recipe)
    assert not other.image("case3")[0].any()
    assert store_notes(other)[0].startswith("4 of 4 images are constant in a channel once prepared")


def test_training_on_nothing_is_said_to_give_no_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    raw = write_nnunet(tmp_path / "raw", [(12, 12, 4)] * 4)
    for case in range(4):
        change(raw, case, labelsTr=np.zeros_like)
    assert main(["prepare", "nnunet", str(raw), str(tmp_path / "store"), "--dims", "2", "--jobs", "1"]) == 0
    said = capsys.readouterr().out
    assert (
        "note: 4 of 4 cases have no labelled voxel; there is nothing to learn: case0, case1, case2 and 1 more" in said
    )
    options = ["--epochs", "2", "--width", "4", "--accelerator", "cpu", "--no-pictures"]
    assert main(["train", "--data", str(tmp_path / "store"), "--out", str(tmp_path / "run"), *options]) == 0
    said = capsys.readouterr()
    assert "note: the training part has no labelled voxel: there is nothing to learn" in said.err
    assert (
        "note: the validation part has no labelled voxel: neither Dice nor ECE can be measured, and the first"
        in said.err
    )
    assert json.loads((tmp_path / "run" / "best.json").read_text())["epoch"] == 1
    assert "no model: the validation Dice is 0 in every epoch" in said.out
    assert "best validation Dice" not in said.out
