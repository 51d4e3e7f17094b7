"""A short slice of every campaign, and the inputs that once were taken badly."""

import io
import json
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest
from tests.campaigns import bad_input, kill, shapes, soak
from tests.campaigns.campaign import RESULTS, run_trials

from crac.calibration import load_calibrator
from crac.data import Store
from crac.errors import InputError
from crac.evaluation.nnunet import read_archive, read_probabilities
from crac.guarantees import load_guarantees
from crac.models.checkpoint import Checkpoint
from crac.report.folder import check_folder
from crac.training import TrainConfig


def test_mutated_files() -> None:
    kinds, defects = run_trials(bad_input.trial, 0, 250)
    assert not defects, next(iter(defects.values()))
    assert sum(kinds.values()) == 250
    assert sum(count for kind, count in kinds.items() if kind.endswith("refused")) > 100


def test_sound_files_are_taken(tmp_path: Path) -> None:
    for number, (name, content, reader, beside) in enumerate(bad_input.corpus()):
        for other, part in {**beside, name: content}.items():
            path = tmp_path / str(number) / other
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(part)
        assert bad_input.read(tmp_path / str(number) / name, reader) == "taken", name


def test_random_shapes() -> None:
    kinds, defects = run_trials(shapes.trial, 0, 40)
    assert not defects, next(iter(defects.values()))
    assert len(kinds) == 4


@pytest.mark.slow
def test_kills() -> None:
    _, defects = run_trials(lambda draw, number: kill.trial(draw, number, ("prepare", "train")), 0, 4)
    assert not defects, next(iter(defects.values()))


@pytest.mark.slow
def test_soak(tmp_path: Path) -> None:
    assert soak.soak(tmp_path, 60, 2)["growth"] <= soak.GROWTH


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.json")), ids=lambda path: path.stem)
def test_committed_results_found_no_defect(path: Path) -> None:
    assert json.loads(path.read_text())["defects"] == 0


def archive(member: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        file.writestr("probabilities.npy", member)
    return out.getvalue()


def array_file(shape: tuple[int, ...]) -> bytes:
    out = io.BytesIO()
    np.lib.format.write_array_header_1_0(out, {"descr": "<f4", "fortran_order": False, "shape": shape})
    return out.getvalue() + bytes(64)


def by_name(name: str) -> tuple[str, bytes, object, dict[str, bytes]]:
    return next(entry for entry in bad_input.corpus() if entry[0].endswith(name))


def with_properties(path: Path) -> None:
    from crac.data import read_label

    _, _, _, beside = by_name("case.pkl")
    for name, content in beside.items():
        (path.parent / name).write_bytes(content)
    read_probabilities(path.with_suffix(".npz"), read_label(path.parent / "label.nii.gz"))


KEPT = {
    "an array of another kind than numpy's": ("case.npz", archive(b"no array"), read_archive),
    "an array that promises 40 GB": ("case.npz", archive(array_file((10, 1000, 1000, 1000))), read_archive),
    "properties that are a number": ("case.pkl", pickle.dumps({"nibabel_stuff": 3}), with_properties),
    "properties without an affine": (
        "case.pkl",
        pickle.dumps({"nibabel_stuff": {"original_affine": []}}),
        with_properties,
    ),
    "three thousand brackets": ("config.yaml", b"[" * 3000, TrainConfig.load),
    "a calibrator of two thousand million classes": (
        "calibration.json",
        json.dumps({"format": 1, "calibrator": "vector", "num_classes": 2**31 - 1, "options": {}}).encode(),
        load_calibrator,
    ),
    "guarantees of two thousand million classes": (
        "guarantees.json",
        json.dumps({"format": 1, "num_classes": 2**31 - 1, "alpha": 0.1, "class_names": [], "options": {}}).encode(),
        load_guarantees,
    ),
    "a summary whose files are no names": ("summary.json", b'{"crac": 1, "files": [{}, []]}', None),
}


@pytest.mark.parametrize("kept", KEPT)
def test_inputs_that_once_were_taken_badly(kept: str, tmp_path: Path) -> None:
    name, content, reader = KEPT[kept]
    (tmp_path / name).write_bytes(content)
    if reader is None:
        assert check_folder(tmp_path) == {"summary.json"}
        return
    with pytest.raises(InputError), bad_input.guarded():
        reader(tmp_path / name)


def test_a_header_that_is_no_python(tmp_path: Path) -> None:
    name, content, _, beside = by_name("image.npy")
    for other, sound in beside.items():
        (tmp_path / other).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / other).write_bytes(sound)
    for broken in (content.replace(b"}", b" ", 1), content.replace(b"'descr'", b"'de\0cr'", 1)):
        (tmp_path / name).write_bytes(broken)
        store = Store.open(tmp_path / "store")
        with pytest.raises(InputError, match="cannot be read"):
            store.image("patient001_frame01")


@pytest.mark.parametrize("description", ["[" * 5000, '{"format": Infinity}'], ids=["brackets", "endless"])
def test_a_description_that_is_none(description: str, tmp_path: Path) -> None:
    _, content, _, _ = by_name("last.safetensors")
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    header["__metadata__"] = {"crac": description}
    text = json.dumps(header).encode()
    (tmp_path / "last.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + content[8 + size :])
    with pytest.raises(InputError, match="its description is missing or damaged"):
        Checkpoint.load(tmp_path / "last.safetensors")
