"""Layouts: what is accepted, what is said about the rest."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.data.layouts import write_nifti, write_nnunet

from crac.data import prepare
from crac.data.sources import read_acdc, read_flare, read_nnunet
from crac.errors import InputError


@pytest.fixture
def nnunet_raw(tmp_path: Path) -> Path:
    return write_nnunet(tmp_path / "Dataset001_Box", [(8, 9, 10)] * 3)


def test_acdc(cardiac_raw: Path) -> None:
    source = read_acdc(cardiac_raw)
    assert source.class_names == ("background", "RV", "MYO", "LV")
    assert not source.problems
    assert len(source.cases) == 12
    assert [case.group for case in source.cases[::2]] == ["DCM", "HCM", "MINF", "NOR", "RV", "DCM"]
    assert {case.patient for case in source.cases} == {f"patient{number:03d}" for number in range(1, 7)}


def test_acdc_defects(cardiac_raw: Path, tmp_path: Path) -> None:
    raw = tmp_path / "raw"
    shutil.copytree(cardiac_raw, raw)
    next(raw.glob("patient001/*_frame01_gt.nii.gz")).unlink()
    next(raw.glob("patient002/*_frame01.nii.gz")).unlink()
    (raw / "patient003" / "Info.cfg").unlink()
    (raw / "patient004" / "Info.cfg").write_text("ED: one\nGroup: NOR\n")
    (raw / "patient005" / "patient005_4d.nii.gz").write_bytes(b"not read")
    problems = read_acdc(raw).problems
    expected = (
        "patient001_frame01_gt.nii.gz: missing label of the ED frame",
        "patient002_frame01.nii.gz: missing image of the ED frame",
        "patient003/Info.cfg: missing or unreadable",
        "patient004/Info.cfg: ED must be a frame number; got 'one'",
        "patient004/Info.cfg: ES must be a frame number; got ''",
    )
    assert len(problems) == len(expected)
    for problem, text in zip(problems, expected, strict=True):
        assert text in problem


def test_flare21(abdominal_raw: Path) -> None:
    source = read_flare(abdominal_raw)
    assert source.name == "FLARE21 phantom"
    assert [case.name for case in source.cases] == ["train_000", "train_001", "train_002"]
    assert source.label_values == {0: 0, 1: 1, 2: 2, 3: 3, 4: 4}


def test_flare22_s_thirteen_organs_become_four(tmp_path: Path) -> None:
    label = np.zeros((8, 8, 15), dtype=np.uint8)
    label[...] = np.arange(15) % 14
    image = np.zeros(label.shape, dtype=np.int16)
    write_nifti(tmp_path / "raw" / "imagesTr" / "FLARE22_Tr_0001_0000.nii.gz", image, spacing=(2, 2, 8))
    write_nifti(tmp_path / "raw" / "labelsTr" / "FLARE22_Tr_0001.nii.gz", label, spacing=(2, 2, 8))
    store = prepare("flare", tmp_path / "raw", tmp_path / "store")
    assert store.name == "FLARE22"
    assert store.class_names == ("background", "liver", "kidney", "spleen", "pancreas")
    plane = 64
    # 0 and the nine other organs; liver 1; kidneys 2 and 13; spleen 3; pancreas 4. Slice 14 wraps to 0.
    assert store.cases["FLARE22_Tr_0001"].voxels == (10 * plane, plane, 2 * plane, plane, plane)
    expected = np.array([0, 1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0])
    np.testing.assert_array_equal(store.original_label("FLARE22_Tr_0001")[0, 0], expected)


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
        ({"labels": {"background": 0, "organ": 1, "ignore": 2}}, "'ignore' label is not accepted"),
        ({"labels": []}, "labels must map"),
        ({"labels": {"background": 0}}, "without gaps"),
        ({"channel_names": {}}, "channel_names"),
        ({"channel_names": {"first": "MRI"}}, "channel_names"),
        ({"file_ending": ".png"}, "file_ending must be one of .nii.gz, .nii; got '.png'"),
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


@pytest.mark.parametrize("read", [read_acdc, read_flare, read_nnunet])
def test_no_folder_and_empty_folder(read: Callable, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        read(tmp_path / "absent")
    with pytest.raises(InputError, match="is empty"):
        read(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="is a file"):
        read(tmp_path / "file")
    with pytest.raises(InputError, match="looks like no layout that is known here"):
        read(tmp_path)


def test_a_wrong_layout_is_recognised(cardiac_raw: Path, abdominal_raw: Path, nnunet_raw: Path, tmp_path: Path) -> None:
    flare22 = tmp_path / "flare22"
    (flare22 / "imagesTr").mkdir(parents=True)
    (flare22 / "labelsTr").mkdir()
    folders = {
        r"crac prepare acdc": (cardiac_raw, (read_flare, read_nnunet)),
        r"FLARE21 \(crac prepare flare": (abdominal_raw, (read_acdc, read_nnunet)),
        r"crac prepare nnunet": (nnunet_raw, (read_acdc, read_flare)),
        r"FLARE22, or nnU-Net without its dataset.json": (flare22, (read_acdc, read_nnunet)),
        r"ACDC .*, in its sub-folder 'raw'": (cardiac_raw.parent, (read_acdc,)),
    }
    for message, (folder, readers) in folders.items():
        for read in readers:
            with pytest.raises(InputError, match=message):
                read(folder)


def test_odd_names_and_empty_sets(nnunet_raw: Path, tmp_path: Path) -> None:
    image = next((nnunet_raw / "imagesTr").glob("case0*"))
    image.rename(image.with_name("a case_0000.nii.gz"))
    label = nnunet_raw / "labelsTr" / "case0.nii.gz"
    label.rename(label.with_name("a case.nii.gz"))
    assert any("'a case' may only hold letters" in problem for problem in read_nnunet(nnunet_raw).problems)
    for folder in ("imagesTr", "labelsTr"):
        shutil.rmtree(nnunet_raw / folder)
        (nnunet_raw / folder).mkdir()
    with pytest.raises(InputError, match="has no labelled case"):
        prepare("nnunet", nnunet_raw, tmp_path / "store")
