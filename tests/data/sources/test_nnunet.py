"""nnU-Net's layout and the Decathlon's: what is accepted, what is said about the rest."""

import json
from pathlib import Path

import numpy as np
import pytest
from tests.data.layouts import write_nifti, write_nnunet

from crac.data import prepare
from crac.data.sources import read_nnunet
from crac.errors import InputError


def test_nnunet(nnunet_raw: Path) -> None:
    source = read_nnunet(nnunet_raw)
    assert source.name == "Dataset001_Box"
    assert source.class_names == ("background", "box")
    assert [case.name for case in source.cases] == ["case0", "case1", "case2"]


def test_nnunet_with_channels(tmp_path: Path) -> None:
    raw = write_nnunet(tmp_path / "raw", [(8, 9, 10)] * 3, channels={"1": "T2", "0": "T1"})
    source = read_nnunet(raw)
    assert source.channel_names == ("T1", "T2")
    store = prepare("nnunet", raw, tmp_path / "store")
    assert store.channels == 2
    assert store.image("case0").shape == (2, 10, 9, 8)
    means = [statistics.mean for statistics in store.cases["case0"].intensity]
    assert means[1] - means[0] == pytest.approx(10, abs=1)
    next((raw / "imagesTr").glob("case1_0001*")).unlink()
    next((raw / "labelsTr").glob("case2*")).unlink()
    (raw / "imagesTr" / "stray.nii.gz").write_bytes(b"")
    problems = "\n".join(read_nnunet(raw).problems)
    for text in (
        "case1_0001.nii.gz: missing image",
        "case2.nii.gz: missing label",
        "stray.nii.gz: an image's name must",
    ):
        assert text in problems


def test_a_channel_that_is_not_announced_is_a_defect(tmp_path: Path) -> None:
    raw = write_nnunet(tmp_path / "raw", [(8, 9, 10)] * 3, channels={"0": "T1", "1": "T2"})
    content = json.loads((raw / "dataset.json").read_text())
    (raw / "dataset.json").write_text(json.dumps(content | {"channel_names": {"0": "T1"}}))
    assert [problem.partition("imagesTr")[2][1:] for problem in read_nnunet(raw).problems] == [
        f"case{number}_0001.nii.gz: one channel too many, for 1 is announced" for number in range(3)
    ]


@pytest.mark.parametrize(("folder", "name"), [("imagesTr", "case1_0000"), ("labelsTr", "case1")])
def test_two_files_of_one_name_are_a_defect(nnunet_raw: Path, folder: str, name: str) -> None:
    (other := nnunet_raw / folder / f"{name}.nrrd").write_bytes(b"another version")
    (problem,) = read_nnunet(nnunet_raw).problems
    assert problem == f"{other} and {name}.nii.gz have one name: which of them counts cannot be told"


def test_decathlon(tmp_path: Path) -> None:
    raw, generator = tmp_path / "Task99_Box", np.random.default_rng(0)
    for number in range(3):
        write_nifti(raw / "imagesTr" / f"box_{number}.nii.gz", generator.random((6, 7, 8, 2)).astype(np.float32))
        write_nifti(raw / "labelsTr" / f"box_{number}.nii.gz", generator.integers(0, 3, (6, 7, 8)).astype(np.float32))
    (raw / "imagesTr" / "._box_0.nii.gz").write_bytes(b"left by a Mac")
    content = {
        "name": "Box",
        "modality": {"0": "T2", "1": "ADC"},
        "labels": {"0": "background", "1": "PZ", "2": "TZ"},
        "training": [{"image": f"./imagesTr/box_{n}.nii.gz", "label": f"./labelsTr/box_{n}.nii.gz"} for n in range(3)],
    }
    (raw / "dataset.json").write_text(json.dumps(content))
    store = prepare("nnunet", raw, tmp_path / "store")
    assert (store.name, store.class_names, store.manifest.channel_names) == (
        "Box",
        ("background", "PZ", "TZ"),
        ("T2", "ADC"),
    )
    assert store.image("box_1").shape == (2, 8, 7, 6)
    content["training"].append({"image": "./imagesTr/box_9.nii.gz"})
    content["training"].append({"image": "./imagesTr/box_9.nii.gz", "label": "./labelsTr/box_1.nii.gz"})
    (raw / "dataset.json").write_text(json.dumps(content))
    problems = read_nnunet(raw).problems
    assert len(problems) == 2
    assert "must name an image and a label" in problems[0]
    assert "box_9.nii.gz: missing image" in problems[1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labels": {"background": 0, "whole": [1, 2], "core": 2}}, "whole are regions"),
        ({"labels": {"background": 0, "organ": 2}}, "without gaps"),
        ({"labels": {"background": 0, "ignore": 1, "organ": 2}}, "'ignore' must have the highest number"),
        ({"labels": {"background": 0, "ignore": 1}}, "'ignore' must have the highest number, after two classes"),
        ({"labels": []}, "labels must map"),
        ({"labels": {"background": 0}}, "without gaps"),
        ({"labels": {"background": 0} | {f"c{k}": k for k in range(1, 256)}}, "labels must be at most 255, .* got 256"),
        ({"channel_names": {}}, "channel_names"),
        ({"channel_names": {"first": "MRI"}}, "channel_names"),
        ({"file_ending": ".png"}, "file_ending must be one of .nii.gz, .nii, .mgz, .mgh, .nrrd; got '.png'"),
    ],
)
def test_other_dataset_json_is_refused(nnunet_raw: Path, change: dict, message: str) -> None:
    path = nnunet_raw / "dataset.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(InputError, match=message):
        read_nnunet(nnunet_raw)


@pytest.mark.parametrize("content", ["", "[1]", "{", "\xff"])
def test_broken_dataset_json_is_refused(nnunet_raw: Path, content: str) -> None:
    (nnunet_raw / "dataset.json").write_bytes(content.encode("latin-1"))
    with pytest.raises(InputError, match=r"dataset\.json"):
        read_nnunet(nnunet_raw)
