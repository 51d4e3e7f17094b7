"""Which maps, in which precision, and what is done when some are there already."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import nibabel as nib
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import ndimage
from tests.models.blobs import RECIPES, threshold_model, write_blobs

from crac.cli import main
from crac.data import Store
from crac.errors import InputError, ProblemsError
from crac.models import planes
from crac.models.maps import MAPS, DType, Map, Target, keep_largest
from crac.models.model import Model
from crac.models.predict import RECORD, find_images, predict_images
from crac.models.predictor import Piece


def read(path: Path) -> np.ndarray:
    return np.asarray(nib.load(path).dataobj)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    for number, name in enumerate("abc"):
        write_blobs(tmp_path / "in" / f"{name}.nii.gz", (8 + number, 9, 4))
    return tmp_path


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("dims", [2, 3])
def test_maps_in_pieces_of_files_are_those_in_memory(
    recipe: str, dims: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    patch = (2, 4, 4) if dims == 3 else None
    model, images = threshold_model(RECIPES[recipe], dims, patch), find_images([folder / "in"], 1)
    written = predict_images(model, images, folder / "out").written
    monkeypatch.setattr(planes, "CPU_MOST", 0)  # nothing may stay in memory
    again = predict_images(model, images, folder / "again").written
    assert len(written) == len(again) == 12
    for first, second in zip(written, again, strict=True):
        assert first.read_bytes() == second.read_bytes()
    prediction = model.predict(folder / "in" / "a.nii.gz")
    np.testing.assert_array_equal(read(folder / "out" / "a_label.nii.gz"), prediction.labels)
    np.testing.assert_array_equal(
        np.moveaxis(read(folder / "out" / "a_probabilities.nii.gz"), 3, 0), prediction.probabilities
    )
    assert not list(folder.rglob(".partial*"))


@pytest.mark.parametrize("dtype", get_args(DType))
def test_precision(dtype: Any, folder: Path) -> None:
    model, images = threshold_model(RECIPES["stored"]), find_images([folder / "in" / "a.nii.gz"], 1)
    predict_images(model, images, folder / "out", outputs=[Map(name, dtype) for name in MAPS])
    exact = model.predict(folder / "in" / "a.nii.gz")
    error = {"float32": 0, "float16": 2**-12, "uint8": 1 / 255}[dtype]
    found = np.moveaxis(read(folder / "out" / "a_probabilities.nii.gz"), 3, 0)
    np.testing.assert_allclose(found, exact.probabilities, atol=error)
    np.testing.assert_allclose(found.sum(0), 1, atol={"float32": 1e-6, "float16": 1e-3, "uint8": 1e-6}[dtype])
    np.testing.assert_allclose(read(folder / "out" / "a_confidence.nii.gz"), exact.confidence, atol=error)
    np.testing.assert_allclose(read(folder / "out" / "a_entropy.nii.gz"), exact.entropy, atol=error)
    np.testing.assert_array_equal(read(folder / "out" / "a_label.nii.gz"), exact.labels)
    stored = nib.load(folder / "out" / "a_probabilities.nii.gz").get_data_dtype()
    assert stored == (np.uint8 if dtype == "uint8" else np.float32)


@given(
    seed=st.integers(0, 500),
    shape=st.sampled_from([(7, 8), (5, 6, 7), (1, 6, 7)]),
    classes=st.integers(1, 4),
)
def test_the_largest_part_of_each_class_is_kept(seed: int, shape: tuple[int, ...], classes: int) -> None:
    labels = np.random.default_rng(seed).integers(0, classes + 1, shape).astype(np.uint8)
    labels[np.random.default_rng(seed + 1).random(shape) < 0.6] = 0
    found = labels.copy()
    keep_largest(found)
    assert ((found == labels) | (found == 0)).all()
    for value in range(1, classes + 1):
        parts, number = ndimage.label(labels == value, np.ones((3,) * len(shape)))
        sizes = [int((parts == part).sum()) for part in range(1, number + 1)]
        kept = found == value
        assert kept.sum() == max(sizes, default=0)
        assert ndimage.label(kept, np.ones((3,) * len(shape)))[1] == min(1, number)


def test_largest_component_changes_the_label_alone(folder: Path) -> None:
    image = np.zeros((12, 12, 3), dtype=np.float32)
    image[1:4, 1:4] = image[6:11, 6:11] = 1
    nib.save(nib.Nifti1Image(image, np.eye(4)), folder / "two.nii.gz")
    model, images = threshold_model(RECIPES["stored"]), find_images([folder / "two.nii.gz"], 1)
    outputs = [Map(name, largest_component=True) for name in MAPS]
    predict_images(model, images, folder / "out", outputs=outputs)
    predict_images(model, images, folder / "plain")
    label = read(folder / "out" / "two_label.nii.gz")
    assert label[1:4, 1:4].max() == 0
    np.testing.assert_array_equal(label[5:, 5:], image[5:, 5:])
    for name in ("confidence", "entropy", "probabilities"):
        file = f"two_{name}.nii.gz"
        assert (folder / "out" / file).read_bytes() == (folder / "plain" / file).read_bytes()


def test_what_is_finished_is_left_alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, images, out = threshold_model(RECIPES["stored"]), find_images([folder / "in"], 1), folder / "out"
    label = [Map("label")]
    assert len(predict_images(model, images, out, outputs=label).written) == 3
    before = {path.name: path.stat().st_mtime_ns for path in out.iterdir()}
    assert predict_images(model, images, out, outputs=label) == ([], [out / f"{name}_label.nii.gz" for name in "abc"])
    assert before == {path.name: path.stat().st_mtime_ns for path in out.iterdir()}
    # Another map: the images are segmented again for it, what was noted stays.
    found = predict_images(model, images[:1], out, outputs=[Map("label"), Map("confidence")])
    assert {path.name for path in found.written} == {"a_label.nii.gz", "a_confidence.nii.gz"}
    assert json.loads((out / RECORD).read_text())["outputs"].keys() == {"label", "confidence"}
    assert len(predict_images(model, images, out, outputs=label).finished) == 3
    # A missing file, a newer image, or being told to.
    (out / "b_label.nii.gz").unlink()
    assert [path.name for path in predict_images(model, images, out, outputs=label).written] == ["b_label.nii.gz"]
    later = (out / "c_label.nii.gz").stat().st_mtime_ns + 10**9
    os.utime(folder / "in" / "c.nii.gz", ns=(later, later))
    assert [path.name for path in predict_images(model, images, out, outputs=label).written] == ["c_label.nii.gz"]
    os.utime(folder / "in" / "c.nii.gz", ns=(1, 1))
    assert len(predict_images(model, images, out, outputs=label, force=True).written) == 3


def test_maps_of_something_else_are_not_mixed_up(folder: Path) -> None:
    images, out = find_images([folder / "in"], 1), folder / "out"
    predict_images(threshold_model(RECIPES["stored"]), images, out)
    mirrored = threshold_model(RECIPES["stored"], mirror=True)
    with pytest.raises(
        InputError, match=r"out holds maps of another model or other settings \(mirror\), see prediction"
    ):
        predict_images(mirrored, images, out)
    with pytest.raises(InputError, match=r"other settings \(confidence\)"):
        predict_images(threshold_model(RECIPES["stored"]), images, out, outputs=[Map("confidence", "uint8")])
    with pytest.raises(InputError, match="would keep the confidence, entropy, probabilities of another model"):
        predict_images(mirrored, images, out, outputs=[Map("label")], force=True)
    # Told to replace them, those of other images do not count as finished either.
    assert len(predict_images(mirrored, images[:1], out, force=True).written) == 4
    found = predict_images(mirrored, images, out)
    assert len(found.written) == 8
    assert len(found.finished) == 4
    (out / RECORD).write_text("{")
    with pytest.raises(InputError, match="cannot be read as JSON"):
        predict_images(mirrored, images, out)


@pytest.mark.slow
def test_a_prediction_that_was_killed_goes_on_to_the_same_bytes(run: Path, store: Store, tmp_path: Path) -> None:
    raw = [str(path) for path in sorted((store.path.parent / "raw" / "TrainingImg").glob("*.nii.gz"))[:4]]
    arguments = ["predict", str(run), *raw, "--device", "cpu", "--out"]
    assert main([*arguments, str(tmp_path / "whole")]) == 0
    code = "import sys; from crac.cli import main; sys.exit(main(sys.argv[1:]))"
    process = subprocess.Popen([sys.executable, "-c", code, *arguments, str(tmp_path / "killed")])
    while process.poll() is None and not list((tmp_path / "killed").glob("*_label.nii.gz")):
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert main([*arguments, str(tmp_path / "killed")]) == 0
    names = {path.name for path in (tmp_path / "whole").iterdir()}
    assert names == {path.name for path in (tmp_path / "killed").iterdir() if not path.name.startswith(".partial")}
    for name in names:
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "killed" / name).read_bytes()


def test_an_error_in_the_middle_leaves_no_part_of_a_map(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, images = threshold_model(RECIPES["stored"]), find_images([folder / "in"], 1)
    pieces = Model.pieces

    def failing(self: Model, image: Any, geometry: Any, name: str, *rest: Any) -> Iterator[Piece]:
        for number, piece in enumerate(pieces(self, image, geometry, name, *rest)):
            if number == 2 and "b.nii" in name:
                raise InputError(f"{name}: no")
            yield piece

    monkeypatch.setattr(Model, "pieces", failing)
    with pytest.raises(ProblemsError, match="2 of 3 images were segmented"):
        predict_images(model, images, folder / "out")
    assert not list((folder / "out").glob("b_*"))
    monkeypatch.setattr(Model, "pieces", pieces)
    found = predict_images(model, images, folder / "out")
    assert len(found.written) == 4
    assert len(found.finished) == 8


def test_a_full_disk_is_one_sentence(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        def __getattr__(self, name: str) -> Any:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(planes, "CPU_MOST", 0)
    monkeypatch.setattr(planes.tempfile, "TemporaryFile", lambda dir: Full())
    with pytest.raises(ProblemsError, match="cannot be written: No space left on device"):
        predict_images(threshold_model(RECIPES["stored"]), find_images([folder / "in"], 1), folder / "out")
    assert not (folder / "out").exists()


def test_more_can_be_made_of_the_pieces(folder: Path) -> None:
    """What is hooked in sees every voxel of the native grid once."""

    class Volumes:
        name = "volumes"

        def settings(self) -> dict[str, Any]:
            return {}

        def files(self, name: str) -> list[str]:
            return [f"{name}_volumes.txt"]

        def begin(self, target: Target) -> Any:
            class Sum:
                total, seen = np.zeros(2), np.zeros(target.geometry.shape, dtype=int)

                def add(self, piece: Piece) -> None:
                    self.total += piece.prediction.probabilities.sum((1, 2, 3))
                    self.seen[piece.where] += 1

                def finish(self) -> None:
                    assert (self.seen == 1).all()
                    (target.out / f"{target.name}_volumes.txt").write_text(" ".join(map(str, self.total)))

            return Sum()

    for recipe in RECIPES.values():
        model, images = threshold_model(recipe), find_images([folder / "in"], 1)
        out = folder / recipe.name
        predict_images(model, images, out, outputs=[Volumes()])
        for image in images:
            total = [float(part) for part in (out / f"{image.name}_volumes.txt").read_text().split()]
            expected = model.predict(image.files[0]).probabilities.sum((1, 2, 3))
            np.testing.assert_allclose(total, expected, rtol=1e-5)


def test_the_bar_counts_images_or_what_one_takes(folder: Path) -> None:
    seen: list[tuple[str, int]] = []

    def track(items: Any, description: str, total: int) -> Any:
        seen.append((description, total))
        yield from items

    model = threshold_model(RECIPES["stored"], batch_size=3)
    predict_images(model, find_images([folder / "in"], 1), folder / "out", track)
    predict_images(model, find_images([folder / "in" / "a.nii.gz"], 1), folder / "one", track)
    assert seen == [("predicting", 3), ("slices", 2)]


def test_command_line(run: Path, store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    raw = sorted((store.path.parent / "raw" / "TrainingImg").glob("*.nii.gz"))[:2]
    out = tmp_path / "out"
    arguments = ["predict", str(run), "--out", str(out), "--device", "cpu", "--dtype", "uint8", "--largest-component"]
    options = ["--maps", "label", "confidence"]
    assert main([*arguments, str(raw[0]), *options]) == 0
    assert "1 image segmented: " in capsys.readouterr().out
    names = sorted(path.name.removesuffix("_0000.nii.gz") for path in raw)
    assert {path.name for path in out.iterdir()} == {
        RECORD,
        f"{names[0]}_label.nii.gz",
        f"{names[0]}_confidence.nii.gz",
    }
    assert main([*arguments, *map(str, raw), *options, "--json"]) == 0
    said = capsys.readouterr()
    assert "1 image segmented, 1 image finished before (--force segments them again)" in said.err
    files = {name: [str(out / f"{name}_{kind}.nii.gz") for kind in options[1:]] for name in names}
    assert json.loads(said.out) == [{"image": name, "files": own} for name, own in files.items()]
    assert main([*arguments, *map(str, raw), *options, "--force"]) == 0
    assert "2 images segmented: " in capsys.readouterr().out
    assert main([*arguments, str(raw[0]), "--mirror"]) == 2
    assert "holds maps of another model or other settings (mirror)" in capsys.readouterr().err


@pytest.mark.parametrize("dtype", get_args(DType))
def test_maps_of_every_precision_can_be_audited(dtype: str, folder: Path) -> None:
    (folder / "labels").mkdir()
    for path in (folder / "in").iterdir():
        image = nib.load(path)
        label = (np.asarray(image.dataobj) > 0.5).astype(np.uint8)
        nib.save(nib.Nifti1Image(label, image.affine), folder / "labels" / path.name)
    model, images = threshold_model(RECIPES["stored"]), find_images([folder / "in"], 1)
    predict_images(model, images, folder / "out", outputs=[Map(name, dtype) for name in MAPS])
    paths = ["--probabilities", str(folder / "out"), "--labels", str(folder / "labels"), "--out", str(folder / "audit")]
    assert main(["evaluate", *paths]) == 0
    assert json.loads((folder / "audit" / "summary.json").read_text())["per_volume"]["dsc"]["mean"] == 1
