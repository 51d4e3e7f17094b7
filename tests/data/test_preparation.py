"""Preparing: sound data becomes a store, unsound data a list of defects, and nothing is left half-written."""

import errno
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
from tests.data.layouts import write_nifti, write_nnunet

from crac.data import Store, preparation, prepare, work
from crac.errors import InputError, ProblemsError


def everything(folder: Path) -> dict[str, tuple[int, int]]:
    """Every path below a folder with its size and time."""
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in sorted(folder.rglob("*"))}


def test_a_store_holds_what_the_files_hold(cardiac_raw: Path, cardiac_store: Store) -> None:
    cardiac_store.verify()
    assert cardiac_store.num_classes == 4
    for name, case in cardiac_store.cases.items():
        image = nib.load(cardiac_raw / case.patient / f"{name}.nii.gz")
        label = np.asarray(nib.load(cardiac_raw / case.patient / f"{name}_gt.nii.gz").dataobj)
        np.testing.assert_array_equal(case.geometry.affine, image.affine)
        assert case.spacing == pytest.approx(image.header.get_zooms(), rel=1e-6)
        assert case.voxels == tuple(np.bincount(label.ravel(), minlength=4))
        np.testing.assert_array_equal(cardiac_store.original_label(name), label)
        stored = nib.load(cardiac_store.path / "cases" / name / "original_label.nii.gz")
        np.testing.assert_array_equal(stored.affine, image.affine)
        array = np.asarray(image.dataobj)
        assert (case.intensity[0].minimum, case.intensity[0].maximum) == (array.min(), array.max())
        assert case.intensity[0].mean == pytest.approx(array.mean())
        prepared = cardiac_store.image(name)
        assert (prepared.shape, prepared.dtype) == ((1, label.shape[2], 192, 192), np.float16)
        assert prepared.min() >= 0
        assert prepared.max() <= 1
        assert isinstance(prepared, np.memmap)
        assert not prepared.flags.writeable
        assert case.prepared_voxels == tuple(np.bincount(cardiac_store.label(name).ravel(), minlength=4))
    assert (cardiac_store.path / "contact_sheet.png").read_bytes().startswith(b"\x89PNG")


def test_flare_is_cropped_to_the_paper_s_size(abdominal_raw: Path, tmp_path: Path) -> None:
    store = prepare("flare", abdominal_raw, tmp_path / "store")
    for name, case in store.cases.items():
        assert store.label(name).shape == (30, 192, 192)
        assert case.prepared_spacing[1:] == pytest.approx((2, 2), rel=0.02)
        assert case.cropped_away == 0
        assert set(np.unique(store.label(name))) == {0, 1, 2, 3, 4}


def test_processes_give_the_same_store(cardiac_raw: Path, cardiac_store: Store, tmp_path: Path) -> None:
    store = prepare("acdc", cardiac_raw, tmp_path / "store", jobs=2)
    assert store.manifest == cardiac_store.manifest


def test_the_general_recipe_takes_medians_of_the_data_set(tmp_path: Path) -> None:
    raw = write_nnunet(tmp_path / "raw", [(12, 10, 6)] * 3, spacing=(1.0, 1.0, 2.5), codes="LPI")
    case = raw / "imagesTr" / "case2_0000.nii.gz"
    write_nifti(case, np.random.default_rng(0).random((24, 20, 6)).astype(np.float32), spacing=(0.5, 0.5, 2.5))
    write_nifti(raw / "labelsTr" / "case2.nii.gz", np.ones((24, 20, 6), dtype=np.uint8), spacing=(0.5, 0.5, 2.5))
    recipe = prepare("nnunet", raw, tmp_path / "volumes").manifest.recipe
    assert recipe.spacing == pytest.approx((2.5, 1.0, 1.0))
    assert recipe.intensity[0].method == "percentile"
    slices = prepare("nnunet", raw, tmp_path / "slices", dims=2, crop=(6, 16, 8))
    assert slices.manifest.dims == 2
    assert slices.manifest.recipe.spacing[0] is None
    assert {slices.label(name).shape for name in slices.cases} == {(6, 16, 8)}
    assert slices.manifest.recipe.name == "spacing (changed)"
    assert slices.cases["case2"].cropped_away == pytest.approx(1 - 8 / 12)


@pytest.mark.parametrize("shape", [(12, 10), (12, 10, 1), (1, 12, 10)])
def test_an_image_is_one_slice_whatever_the_size_of_its_pixels(tmp_path: Path, shape: tuple[int, ...]) -> None:
    raw = write_nnunet(tmp_path / "raw", [(12, 10, 6)] * 3)
    for path in raw.glob("*Tr/*.nii.gz"):
        values = np.ones(shape, np.uint8) if path.parent.name == "labelsTr" else np.random.default_rng(0).random(shape)
        nib.Nifti1Image(values, np.diag([1.5, 2.0, 1.0, 1.0])).to_filename(path)
    store = prepare("nnunet", raw, tmp_path / "store", dims=2)
    assert [case.prepared_shape[0] for case in store.cases.values()] == [1, 1, 1]


def test_ct_is_windowed_by_the_labelled_voxels(tmp_path: Path) -> None:
    raw = write_nnunet(tmp_path / "raw", [(20, 20, 20)] * 3, channels={"0": "CT"})
    intensity = prepare("nnunet", raw, tmp_path / "store").manifest.recipe.intensity[0]
    assert intensity.method == "window"
    # The box is 150 with deviation 5; 0.5 and 99.5 % of a normal distribution lie 2.58 deviations out.
    assert intensity.low == pytest.approx(150 - 2.58 * 5, abs=3)
    assert intensity.high == pytest.approx(150 + 2.58 * 5, abs=3)


def test_all_defects_are_listed_and_nothing_is_written(cardiac_raw: Path, tmp_path: Path) -> None:
    raw = tmp_path / "raw"
    shutil.copytree(cardiac_raw, raw)
    folders = sorted(raw.glob("patient*"))
    images = [sorted(path for path in folder.glob("*.nii.gz") if "_gt" not in path.name)[0] for folder in folders]
    labels = [path.with_name(path.name.replace(".nii", "_gt.nii")) for path in images]

    labels[0].unlink()
    label = nib.load(labels[1])
    nib.Nifti1Image(np.asarray(label.dataobj)[:-1], label.affine).to_filename(labels[1])
    label = nib.load(labels[2])
    nib.Nifti1Image(np.asarray(label.dataobj), label.affine @ np.diag([1, 1.2, 1, 1])).to_filename(labels[2])
    label = nib.load(labels[3])
    nib.Nifti1Image(np.where(np.asarray(label.dataobj) == 3, 9, 0).astype(np.uint8), label.affine).to_filename(
        labels[3]
    )
    images[4].write_bytes(images[4].read_bytes()[:-2000])
    image = nib.load(images[5])
    broken = np.asarray(image.dataobj).astype(np.float32)
    broken[3, 4, 1] = np.nan
    nib.Nifti1Image(broken, image.affine).to_filename(images[5])

    before = everything(tmp_path)
    with pytest.raises(ProblemsError) as caught:
        prepare("acdc", raw, tmp_path / "store")
    expected = (
        (labels[0], "missing label"),
        (labels[1], "shape"),
        (labels[2], "affine"),
        (labels[3], "holds the label value 9"),
        (images[4], "damaged"),
        (images[5], "1 of"),
    )
    assert len(caught.value.problems) == len(expected)
    for problem, (path, text) in zip(caught.value.problems, expected, strict=True):
        assert str(path) in problem
        assert text in problem
        assert "\n" not in problem
    assert everything(tmp_path) == before


def test_a_finished_store_is_never_touched(cardiac_raw: Path, cardiac_store: Store) -> None:
    before = everything(cardiac_store.path)
    with pytest.raises(InputError, match="is a finished store, which is never changed; choose another path"):
        prepare("acdc", cardiac_raw, cardiac_store.path)
    assert everything(cardiac_store.path) == before


def test_other_targets(cardiac_raw: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for target in (tmp_path / "file", tmp_path):
        with pytest.raises(InputError, match="exists already; choose another path"):
            prepare("acdc", cardiac_raw, target)
    with pytest.raises(InputError, match="is not a folder"):
        prepare("acdc", cardiac_raw, tmp_path / "file" / "store")
    (tmp_path / "empty").mkdir()
    assert prepare("acdc", cardiac_raw, tmp_path / "empty").name == "ACDC phantom"
    assert {path.name for path in tmp_path.iterdir()} == {"file", "empty"}


def test_no_permission(cardiac_raw: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The tests may run as a user whom permissions do not stop, so the question itself is answered with no.
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(InputError, match="no permission to write in"):
        prepare("acdc", cardiac_raw, tmp_path / "store")
    monkeypatch.undo()

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(InputError, match="store cannot be written: Permission denied"):
        prepare("acdc", cardiac_raw, tmp_path / "store")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("when", ["image.npy", "manifest.json", "contact_sheet.png"])
def test_a_full_disk(cardiac_raw: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    module, name = {
        "image.npy": (work, "_save"),
        "manifest.json": (preparation, "write_text"),
        "contact_sheet.png": (preparation, "contact_sheet"),
    }[when]
    monkeypatch.setattr(module, name, full)
    with pytest.raises(InputError, match="store cannot be written: No space left on device"):
        prepare("acdc", cardiac_raw, tmp_path / "store")
    assert not list(tmp_path.iterdir())


def run_prepare(raw: Path, target: Path, limit: int | None = None, jobs: int = 2) -> subprocess.Popen[str]:
    def before() -> None:
        if limit is not None:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    command = [sys.executable, "-m", "crac", "prepare", "acdc", str(raw), str(target), "--jobs", str(jobs)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=before)


def test_a_limit_on_file_sizes_from_outside(cardiac_raw: Path, tmp_path: Path) -> None:
    process = run_prepare(cardiac_raw, tmp_path / "store", limit=50_000)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 2
    assert errors.splitlines()[-1].startswith("crac prepare: ")
    assert "cannot be written: File too large" in errors
    assert "Traceback" not in errors
    assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory, cardiac_raw: Path) -> Path:
    """Enough cases for a run to be caught in the middle."""
    raw = tmp_path_factory.mktemp("many")
    for number in range(1, 41):
        source, target = cardiac_raw / f"patient{(number - 1) % 6 + 1:03d}", raw / f"patient{number:03d}"
        target.mkdir()
        for path in source.iterdir():
            shutil.copy(path, target / path.name.replace(source.name, target.name))
    return raw


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_run_continues(many: Path, tmp_path: Path, how: signal.Signals) -> None:
    target, records = tmp_path / "store", tmp_path / "store" / ".crac-prepare"
    process = run_prepare(many, target)
    deadline = time.monotonic() + 120
    while len(list(records.glob("[!.]*.json"))) < 5:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.005)
    process.send_signal(how)
    _, errors = process.communicate(timeout=60)
    if how == signal.SIGINT:
        assert process.returncode == 130
        assert "give the same command again to continue" in errors
        assert "Traceback" not in errors
    with pytest.raises(InputError, match=r"no manifest\.json"):
        Store.open(target)
    time.sleep(0.3)  # orphaned workers end by themselves; what they were doing is done again
    kept = {path.stem: path.stat().st_mtime_ns for path in records.glob("[!.]*.json")}
    assert 5 <= len(kept) < 80
    images = {name: (records.parent / "cases" / name / "image.npy").stat().st_mtime_ns for name in kept}
    damaged = next(iter(kept))
    (records / f"{damaged}.json").write_text('{"name": ')  # such a case is prepared anew
    del images[damaged]
    store = prepare("acdc", many, target)
    store.verify()
    assert len(store.cases) == 80
    for name, written in images.items():
        assert (target / "cases" / name / "image.npy").stat().st_mtime_ns == written
    assert [path.name for path in tmp_path.iterdir()] == ["store"]
    assert {path.name for path in target.iterdir()} == {"cases", "contact_sheet.png", "manifest.json", "split.json"}


def test_leftovers_of_other_input_are_not_taken_up(cardiac_raw: Path, cardiac_store: Store, tmp_path: Path) -> None:
    raw = tmp_path / "raw"
    shutil.copytree(cardiac_raw, raw)

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(preparation, "contact_sheet", stop)
        with pytest.raises(KeyboardInterrupt):
            prepare("acdc", raw, tmp_path / "store")
    assert len(list((tmp_path / "store" / ".crac-prepare").glob("*.json"))) == 12
    image = next(raw.glob("patient001/*frame01.nii.gz"))
    loaded = nib.load(image)
    nib.Nifti1Image((np.asarray(loaded.dataobj) * 2).astype(np.int16), loaded.affine).to_filename(image)
    store = prepare("acdc", raw, tmp_path / "store")
    old, new = (each.cases["patient001_frame01"].intensity[0].maximum for each in (cardiac_store, store))
    assert new == 2 * old


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"jobs": 0}, "jobs must be a whole number of at least 1; got 0"),
        ({"crop": (1, 1, 1)}, "cannot be set for acdc"),
        ({"layout": "dicom"}, "layout must be one of acdc, flare, nnunet; got 'dicom'"),
        ({"layout": "flare", "spacing": (0.0, 1.0, 1.0)}, r"spacing\.0"),
        ({"layout": "nnunet", "crop": (0, 1, 1)}, r"crop\.0"),
    ],
)
def test_bad_options(cardiac_raw: Path, tmp_path: Path, options: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        prepare(**{"layout": "acdc", "raw": cardiac_raw, "target": tmp_path / "store"} | options)
    assert not list(tmp_path.iterdir())
