"""Probabilities written back as they were stored, rounded without another winner."""

from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import pytest
import torch
from tests.cli.foreign import AFFINE, overconfident
from tests.evaluation.test_apply import apply, read

import crac
from crac.functional.arrays import in_steps


@pytest.mark.parametrize("dtype", [np.float16, np.uint8])
def test_no_label_changes_when_numbers_are_rounded(dtype: Any, tmp_path: Path) -> None:
    """Nearly equal probabilities become equal in half precision and in 255 steps; the winner is then one step ahead."""
    made = crac.build_calibrator("temperature", 3)
    made.weights[:] = 0.05  # as flat as it gets
    made.save(tmp_path / "c.json")
    p = overconfident(3)[0]
    (tmp_path / "in").mkdir()
    if dtype == np.float16:
        np.savez_compressed(tmp_path / "in" / "case_01.npz", probabilities=p.astype(dtype).transpose(0, 3, 2, 1))
        before, kind = p.astype(dtype), "npz"
    else:
        image = nib.Nifti1Image(np.moveaxis(np.rint(p * 255), 0, 3).astype(np.uint8), AFFINE)
        image.header.set_slope_inter(1 / 255, 0)
        image.to_filename(tmp_path / "in" / "case_01.nii.gz")
        before, kind = read(tmp_path / "in", "last"), "last"
        assert nib.load(tmp_path / "in" / "case_01.nii.gz").dataobj.slope == pytest.approx(1 / 255)
    assert apply(tmp_path) == 0
    after = read(tmp_path / "out", kind)
    np.testing.assert_array_equal(after.argmax(0), before.argmax(0))
    if dtype == np.uint8:
        written = nib.load(tmp_path / "out" / "case_01.nii.gz")
        assert written.get_data_dtype() == np.uint8
        assert written.dataobj.slope == pytest.approx(1 / 255)
        flat = made.from_probabilities(torch.tensor(before[None], dtype=torch.float32))[0]
        np.testing.assert_allclose(after, flat, atol=3 / 255)  # the winner takes what rounding leaves over


@pytest.mark.parametrize("dtype", [np.float32, np.uint8])
@pytest.mark.parametrize("name", ["case", "case_1", "case_017"])
def test_the_foreground_alone(name: str, dtype: Any, tmp_path: Path, capsys: Any) -> None:
    """A binary task may come as one map; calibrated, it is on the same side of one half."""
    made = crac.build_calibrator("class", 2)
    made.weights[:] = torch.tensor([[0.05], [0.1]])
    made.save(tmp_path / "c.json")
    (tmp_path / "in").mkdir()
    p = overconfident(1)[0][1]
    image = nib.Nifti1Image(p if dtype == np.float32 else np.rint(p * 255).astype(np.uint8), AFFINE)
    image.header.set_slope_inter(1 if dtype == np.float32 else 1 / 255, 0)
    image.to_filename(tmp_path / "in" / f"{name}.nii.gz")
    before = np.asarray(nib.load(tmp_path / "in" / f"{name}.nii.gz").dataobj)
    assert apply(tmp_path) == 0
    after = np.asarray(nib.load(tmp_path / "out" / f"{name}.nii.gz").dataobj)
    pair = torch.tensor(np.stack([1 - before, before])[None], dtype=torch.float32)
    np.testing.assert_allclose(
        after, made.from_probabilities(pair)[0, 1], atol=1e-6 if dtype == np.float32 else 1.51 / 255
    )
    np.testing.assert_array_equal(after > 0.5, before > 0.5)
    nib.Nifti1Image((p > 0.5).astype(np.uint8), AFFINE).to_filename(tmp_path / "in" / f"{name}.nii.gz")
    assert apply(tmp_path, "--out", str(tmp_path / "other")) == 2
    assert "holds 0 and 1 only: a label map" in capsys.readouterr().err


def test_a_map_without_foreground_stays_one(tmp_path: Path) -> None:
    made = crac.build_calibrator("temperature", 2)
    made.save(tmp_path / "c.json")
    (tmp_path / "in").mkdir()
    nib.Nifti1Image(np.zeros((4, 5, 6), np.float32), AFFINE).to_filename(tmp_path / "in" / "case.nii.gz")
    assert apply(tmp_path) == 0
    after = np.asarray(nib.load(tmp_path / "out" / "case.nii.gz").dataobj)
    np.testing.assert_allclose(after, 0, atol=1e-6)


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.uint16, np.int32])
@pytest.mark.parametrize("kind", ["last", "classes", "foreground"])
def test_integers_that_a_writer_scaled_to_the_range_of_one_volume(kind: str, dtype: Any, tmp_path: Path) -> None:
    """Calibrated probabilities leave that range, and a class lies in another one than the first."""
    classes = 2 if kind == "foreground" else 3
    made = crac.build_calibrator("temperature", classes)
    made.weights[:] = 1.8  # surer
    made.save(tmp_path / "c.json")
    p = np.clip(overconfident(2)[0], 0.05, 0.8)
    p = p[:classes] / p[:classes].sum(0)
    (tmp_path / "in").mkdir()
    parts = {"last": {"case_01": np.moveaxis(p, 0, 3)}, "foreground": {"case": p[1]}}
    for name, part in parts.get(kind, {f"case_01_{k}": p[k] for k in range(classes)}).items():
        image = nib.Nifti1Image(part, AFFINE)
        image.set_data_dtype(dtype)
        image.to_filename(tmp_path / "in" / f"{name}.nii.gz")
    assert apply(tmp_path) == 0

    def stored(folder: str) -> np.ndarray:
        if kind != "foreground":
            return read(tmp_path / folder, kind)
        (file,) = (tmp_path / folder).glob("*.nii.gz")
        assert nib.load(file).get_data_dtype() == dtype
        found = np.asarray(nib.load(file).dataobj)
        return np.stack([1 - found, found])

    before, after = stored("in").astype(np.float32), stored("out")
    np.testing.assert_allclose(after.sum(0), 1, atol=1e-6)
    np.testing.assert_array_equal(after.argmax(0), before.argmax(0))
    expected = made.from_probabilities(torch.tensor(before[None]))[0].numpy()
    np.testing.assert_allclose(after, expected, atol=3 / min(np.iinfo(dtype).max, 2**16 - 1))


def test_many_classes_in_a_byte_each_still_sum_to_one(tmp_path: Path) -> None:
    made = crac.build_calibrator("temperature", 60)
    made.weights[:] = 0.4
    made.save(tmp_path / "c.json")
    scores = torch.randn(60, 6, 7, 8, generator=torch.Generator().manual_seed(0)) * 3
    (tmp_path / "in").mkdir()
    numbers = in_steps(scores.softmax(0).numpy(), 255, scores.argmax(0).numpy())
    image = nib.Nifti1Image(np.moveaxis(numbers, 0, 3).astype(np.uint8), AFFINE)
    image.header.set_slope_inter(1 / 255, 0)
    image.to_filename(tmp_path / "in" / "case_01.nii.gz")
    before = read(tmp_path / "in", "last")
    assert apply(tmp_path) == 0
    after = read(tmp_path / "out", "last")
    np.testing.assert_allclose(after.sum(0), 1, atol=1e-6)
    np.testing.assert_array_equal(after.argmax(0), before.argmax(0))
