"""Calibrated copies of probability files, of every kind."""

import json
import os
import pickle
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import pytest
import torch
from tests.cli.foreign import AFFINE, overconfident

import crac
from crac.calibration.volume import calibrate_volume
from crac.cli import main
from crac.evaluation import apply as module

KINDS = ("npz", "last", "first", "classes", "ours")


def calibrator(path: Path, name: str = "class_region", regions: str = "volume") -> crac.calibration.Calibrator:
    """One with a different temperature in each cell."""
    made = crac.build_calibrator(name, 3, regions=regions)
    made.weights[:, 0] = 1 / torch.linspace(1.5, 4, len(made.weights))
    if name == "class_region_affine":
        made.weights[:, 1:] = torch.randn(len(made.weights), 3, generator=torch.Generator().manual_seed(0)).double()
    made.save(path)
    return made


def store(folder: Path, kind: str, dtype: Any = np.float32, name: str = "case_01", seed: int = 0) -> np.ndarray:
    """Write probabilities and return them as they are stored, ``(K, X, Y, Z)``."""
    folder.mkdir(exist_ok=True)
    p = overconfident(seed)[0].astype(dtype)
    last = np.moveaxis(p, 0, 3)
    if kind == "npz":
        np.savez_compressed(folder / f"{name}.npz", probabilities=p.transpose(0, 3, 2, 1))
        properties = {"spacing": [3.0, 1.2, 1.0], "sitk_stuff": {"spacing": (1.0, 1.2, 3.0), "origin": (0.0, 0, 0)}}
        (folder / f"{name}.pkl").write_bytes(pickle.dumps(properties))
        nib.Nifti1Image(p.argmax(0).astype(np.uint8), AFFINE).to_filename(folder / f"{name}.nii.gz")
    elif kind == "classes":
        for k in range(3):
            nib.Nifti1Image(p[k], AFFINE).to_filename(folder / f"{name}_{k}.nii.gz")
    else:
        file = f"{name}_probabilities.nii.gz" if kind == "ours" else f"{name}.nii.gz"
        nib.Nifti1Image(p if kind == "first" else last, AFFINE).to_filename(folder / file)
        if kind == "ours":
            nib.Nifti1Image(p.argmax(0).astype(np.uint8), AFFINE).to_filename(folder / f"{name}_label.nii.gz")
    return p


def read(folder: Path, kind: str, name: str = "case_01") -> np.ndarray:
    """What is stored, ``(K, X, Y, Z)``, by numpy and nibabel alone."""
    if kind == "npz":
        return np.load(folder / f"{name}.npz")["probabilities"].transpose(0, 3, 2, 1)
    if kind == "classes":
        return np.stack([np.asarray(nib.load(folder / f"{name}_{k}.nii.gz").dataobj) for k in range(3)])
    file = folder / (f"{name}_probabilities.nii.gz" if kind == "ours" else f"{name}.nii.gz")
    array = np.asarray(nib.load(file).dataobj)
    return array if kind == "first" else np.moveaxis(array, 3, 0)


def apply(tmp_path: Path, *more: str) -> int:
    places = ["--probabilities", str(tmp_path / "in"), "--out", str(tmp_path / "out")]
    return main(["apply", str(tmp_path / "c.json"), *places, *more])


@pytest.mark.parametrize(
    ("kind", "dtype"), [("npz", np.float16), *((kind, dtype) for kind in KINDS for dtype in (np.float32, np.float64))]
)
@pytest.mark.parametrize(("name", "regions"), [("class_region", "volume"), ("class_region_affine", "slice")])
def test_the_same_files_with_calibrated_numbers(kind: str, dtype: Any, name: str, regions: str, tmp_path: Path) -> None:
    made = calibrator(tmp_path / "c.json", name, regions)
    before = store(tmp_path / "in", kind, dtype)
    assert apply(tmp_path) == 0
    after = read(tmp_path / "out", kind)
    assert after.dtype == dtype
    axis = 2  # that of the largest spacing
    expected = calibrate_volume(made, torch.tensor(before, dtype=torch.float32), axis, from_probabilities=True)
    np.testing.assert_allclose(after, expected, atol=1e-3 if dtype == np.float16 else 1e-6)
    assert np.abs(after.astype(float) - before).max() > 0.05
    np.testing.assert_array_equal(after.argmax(0), before.argmax(0))
    for path in (tmp_path / "in").glob("*.nii.gz"):
        if kind != "ours" or path.name.endswith("_probabilities.nii.gz"):
            first, second = nib.load(path), nib.load(tmp_path / "out" / path.name)
            np.testing.assert_array_equal(first.affine, second.affine)
            assert first.shape == second.shape
            assert first.header.get_xyzt_units() == second.header.get_xyzt_units()
    if kind == "npz":
        for ending in (".pkl", ".nii.gz"):
            copied = tmp_path / "out" / f"case_01{ending}"
            assert copied.read_bytes() == (tmp_path / "in" / copied.name).read_bytes()
    assert not list((tmp_path / "out").glob(".partial-*"))


def test_what_is_finished_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    calibrator(tmp_path / "c.json")
    for number in range(3):
        store(tmp_path / "in", "npz", name=f"case_{number}", seed=number)
    real = module.calibrate_volume
    calls = 0

    def failing(*arguments: Any, **options: Any) -> torch.Tensor:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise KeyboardInterrupt
        return real(*arguments, **options)

    monkeypatch.setattr(module, "calibrate_volume", failing)
    assert apply(tmp_path) == 130
    first = (tmp_path / "out" / "case_0.npz").stat()
    assert not (tmp_path / "out" / "case_1.npz").exists()
    capsys.readouterr()
    assert apply(tmp_path, "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"written": ["case_1", "case_2"], "skipped": ["case_0"]}
    assert (tmp_path / "out" / "case_0.npz").stat().st_mtime_ns == first.st_mtime_ns
    newer = first.st_mtime + 100
    os.utime(tmp_path / "in" / "case_1.npz", (newer, newer))  # predicted again
    assert apply(tmp_path, "--json") == 0
    assert json.loads(capsys.readouterr().out)["written"] == ["case_1"]
    calibrator(tmp_path / "c.json", "class")
    assert apply(tmp_path) == 2
    assert "holds what another calibrator made; choose another folder" in capsys.readouterr().err


def test_a_calibrator_that_does_not_fit_leaves_no_folder(tmp_path: Path, capsys: Any) -> None:
    store(tmp_path / "in", "npz")
    crac.build_calibrator("class_region", 4).save(tmp_path / "c.json")
    assert apply(tmp_path) == 2
    assert "has 3 classes, the calibrator is for 4" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    calibrator(tmp_path / "c.json")
    assert apply(tmp_path) == 0


@pytest.mark.parametrize("patients", [2, 3])
def test_numbers_of_patients_are_not_taken_for_classes(patients: int, tmp_path: Path, capsys: Any) -> None:
    crac.build_calibrator("temperature", 2).save(tmp_path / "c.json")
    (tmp_path / "in").mkdir()
    for number in range(patients):
        foreground = overconfident(number)[0][1]
        nib.Nifti1Image(foreground, AFFINE).to_filename(tmp_path / "in" / f"patient_{number}.nii.gz")
    assert apply(tmp_path, "--json") == 0
    assert json.loads(capsys.readouterr().out)["written"] == [f"patient_{number}" for number in range(patients)]


def test_what_nnunet_needs_beside_its_archives_is_copied(tmp_path: Path) -> None:
    calibrator(tmp_path / "c.json")
    store(tmp_path / "in", "npz")
    for name in module.BESIDE:
        (tmp_path / "in" / name).write_text("{}")
    (tmp_path / "in" / "summary.json").write_text("{}")
    assert apply(tmp_path) == 0
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {"calibration.json", "case_01.npz", "case_01.pkl", "case_01.nii.gz", *module.BESIDE}


def test_a_label_map_that_no_longer_fits_is_not_copied(tmp_path: Path) -> None:
    calibrator(tmp_path / "c.json", "vector")
    store(tmp_path / "in", "npz")
    assert apply(tmp_path) == 0
    assert (tmp_path / "out" / "case_01.pkl").is_file()
    assert not (tmp_path / "out" / "case_01.nii.gz").exists()


def bad_sums(folder: Path) -> None:
    np.savez(folder / "case.npz", probabilities=np.full((3, 4, 4, 4), 0.5, np.float32))


def four_classes(folder: Path) -> None:
    np.savez(folder / "case.npz", probabilities=np.full((4, 4, 4, 4), 0.25, np.float32))


def broken(folder: Path) -> None:
    (folder / "case.nii.gz").write_bytes(b"nothing")


def one_missing(folder: Path) -> None:
    store(folder, "classes", name="case")
    (folder / "case_1.nii.gz").unlink()


def label_map(folder: Path) -> None:
    nib.Nifti1Image(np.zeros((4, 4, 4), np.uint8), AFFINE).to_filename(folder / "case.nii.gz")


def whole_numbers(folder: Path) -> None:
    p = np.moveaxis(np.eye(3, dtype=np.uint8)[overconfident(0)[1]], 3, 3)
    nib.Nifti1Image(p, AFFINE).to_filename(folder / "case.nii.gz")


def no_properties(folder: Path) -> None:
    store(folder, "npz", name="case")
    (folder / "case.pkl").unlink()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (bad_sums, "case.npz: probabilities must sum to 1 over the classes; a voxel sums to 1.5"),
        (four_classes, "case.npz has 4 classes, the calibrator is for 3"),
        (broken, "case.nii.gz is damaged"),
        (one_missing, "expected a file for each of the classes 0..2; got 0, 2"),
        (label_map, "case.nii.gz holds no classes"),
        (whole_numbers, "uint8 in steps of 1 cannot hold probabilities; store floats"),
        (no_properties, "no .pkl beside it says along which axis its slices follow each other"),
        (lambda folder: None, "must hold .npz, .nii.gz or .nii files"),
    ],
)
def test_what_cannot_be_calibrated_is_said(make: Any, message: str, tmp_path: Path, capsys: Any) -> None:
    calibrator(tmp_path / "c.json", "class_region", "slice")
    (tmp_path / "in").mkdir()
    make(tmp_path / "in")
    assert apply(tmp_path) == 2
    error = capsys.readouterr().err
    assert message in error
    assert not list(tmp_path.glob("out/case*"))
