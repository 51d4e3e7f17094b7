"""From a trained model to maps that lie exactly on their input, seen with another reader's eyes."""

import shutil
import weakref
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import pytest
import SimpleITK as sitk  # noqa: N813 (its own documentation calls it so)
from tests.models.blobs import RECIPES, UNIT, threshold_model, write_blobs

import crac
from crac.cli import main
from crac.data import Recipe, Store
from crac.errors import InputError, ProblemsError
from crac.models import predict
from crac.models.model import Model
from crac.models.predict import find_images, predict_images


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("dims", [2, 3])
def test_maps_overlay_their_input_in_simpleitk(name: str, dims: int, tmp_path: Path) -> None:
    write_blobs(tmp_path / "case.nii.gz")
    patch = (8, 16, 16) if dims == 3 else None
    model = threshold_model(RECIPES[name], dims, patch)
    written = predict_images(model, find_images([tmp_path / "case.nii.gz"], 1), tmp_path / "out").written
    kinds = ("label", "confidence", "entropy", "probabilities")
    assert {path.name for path in written} == {f"case_{kind}.nii.gz" for kind in kinds}
    image = sitk.ReadImage(str(tmp_path / "case.nii.gz"))
    maps = {kind: sitk.ReadImage(str(tmp_path / "out" / f"case_{kind}.nii.gz")) for kind in kinds}
    for kind in kinds[:3]:
        for what in ("GetSize", "GetSpacing", "GetOrigin", "GetDirection"):
            assert getattr(maps[kind], what)() == getattr(image, what)(), (kind, what)
    assert maps["probabilities"].GetSize() == (*image.GetSize(), 2)
    assert maps["probabilities"].GetSpacing()[:3] == image.GetSpacing()
    assert maps["probabilities"].GetOrigin()[:3] == image.GetOrigin()
    turned = np.reshape(maps["probabilities"].GetDirection(), (4, 4))[:3, :3]
    np.testing.assert_array_equal(turned.ravel(), image.GetDirection())

    arrays = {kind: sitk.GetArrayFromImage(value) for kind, value in maps.items()}
    bright, label = sitk.GetArrayFromImage(image) > 0.5, arrays["label"].astype(bool)
    if name == "resampled":
        assert 2 * (bright & label).sum() / (bright.sum() + label.sum()) > 0.95
        centres = [np.argwhere(mask).mean(0) for mask in (bright, label)]
        assert np.abs(centres[0] - centres[1]).max() < 0.1  # of a voxel: no shift of half a voxel anywhere
    else:
        assert (bright == label).all()
    probabilities = arrays["probabilities"]
    np.testing.assert_allclose(probabilities.sum(0), 1, atol=1e-6)
    assert (probabilities.argmax(0) == label).all()
    np.testing.assert_array_equal(probabilities.max(0), arrays["confidence"])
    expected = -(probabilities * np.log(np.maximum(probabilities, 1e-30))).sum(0) / np.log(2)
    np.testing.assert_allclose(arrays["entropy"], expected, atol=1e-5)


def test_headers_are_kept_to_the_last_bit(tmp_path: Path) -> None:
    write_blobs(tmp_path / "case.nii.gz")
    image = nib.load(tmp_path / "case.nii.gz")
    image.header.set_xyzt_units("mm", "sec")
    image.set_qform(image.affine, code=1)
    image.set_sform(image.affine, code=2)
    nib.save(image, tmp_path / "case.nii.gz")
    model = threshold_model(RECIPES["canonical"])
    predict_images(model, find_images([tmp_path / "case.nii.gz"], 1), tmp_path / "out")
    before, after = nib.load(tmp_path / "case.nii.gz"), nib.load(tmp_path / "out" / "case_label.nii.gz")
    assert np.array_equal(before.affine, after.affine)
    for field in ("qform_code", "sform_code", "quatern_b", "qoffset_x", "srow_x", "pixdim", "xyzt_units"):
        assert np.array_equal(before.header[field], after.header[field]), field
    assert after.get_data_dtype() == np.uint8


def test_channels_are_paired_and_every_defect_is_listed(tmp_path: Path) -> None:
    for name in ("a_0000", "a_0001", "b_0000", "c_0007"):
        write_blobs(tmp_path / f"{name}.nii.gz", (8, 8, 4))
    (image, *rest) = find_images([tmp_path / "a_0001.nii.gz", tmp_path / "a_0000.nii.gz"], 2)
    assert not rest
    assert [path.name for path in image.files] == ["a_0000.nii.gz", "a_0001.nii.gz"]
    recipe = Recipe(name="two", orientation="stored", intensity=(UNIT, UNIT))
    assert len(predict_images(threshold_model(recipe), [image], tmp_path / "out").written) == 4
    with pytest.raises(
        ProblemsError, match="a must have the channel _0000 alone, as the model has 1; found _0000, _0001"
    ):
        find_images([tmp_path], 1)
    with pytest.raises(ProblemsError, match=r"a must have the channels _0000 to _0002, .* found _0000, _0001"):
        find_images([tmp_path / "a_0000.nii.gz", tmp_path / "a_0001.nii.gz"], 3)
    single = find_images([tmp_path / f"{name}.nii.gz" for name in ("a_0001", "b_0000", "c_0007")], 1)
    assert [image.name for image in single] == ["a_0001", "b", "c_0007"]  # a number without a _0000 is part of a name

    (whole,) = find_images([tmp_path / "a_0001.nii.gz"], 2)  # all channels inside one file, as far as its name says
    assert whole.name == "a_0001"

    (tmp_path / "notes.txt").touch()
    (tmp_path / "empty").mkdir()
    inputs = [tmp_path / "a_0001.nii.gz", tmp_path / "no.nii.gz", tmp_path / "notes.txt", tmp_path / "empty"]
    with pytest.raises(ProblemsError) as caught:
        find_images(inputs, 2)
    assert len(caught.value.problems) == 3
    other = tmp_path / "empty" / "b_0000.nii.gz"
    write_blobs(other, (8, 8, 4))
    with pytest.raises(ProblemsError, match="would both be written as b"):
        find_images([tmp_path / "b_0000.nii.gz", other], 1)


def test_a_broken_image_does_not_stop_the_others(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for name in ("a", "c"):
        write_blobs(tmp_path / "in" / f"{name}.nii.gz", (8, 8, 4))
    (tmp_path / "in" / "b.nii.gz").write_bytes(b"no image")
    images = find_images([tmp_path / "in"], 1)
    with pytest.raises(ProblemsError, match="2 of 3 images were segmented") as caught:
        predict_images(threshold_model(RECIPES["stored"]), images, tmp_path / "out")
    assert "b.nii.gz" in caught.value.problems[0]
    assert len(list((tmp_path / "out").glob("*.nii.gz"))) == 8
    with pytest.raises(ProblemsError, match="0 of 1 images were segmented"):
        predict_images(threshold_model(RECIPES["stored"]), images[1:2], tmp_path / "none")
    assert not (tmp_path / "none").exists()
    with pytest.raises(InputError, match="--out must not be the folder of an input"):
        predict_images(threshold_model(RECIPES["stored"]), images, tmp_path / "in")


def test_an_image_too_long_for_any_grid_does_not_stop_the_others(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    nib.Nifti2Image(np.zeros((33000, 2, 2), np.uint8), np.eye(4)).to_filename(tmp_path / "in" / "a.nii.gz")
    write_blobs(tmp_path / "in" / "b.nii.gz", (8, 8, 4))
    with pytest.raises(ProblemsError, match="1 of 2 images were segmented") as caught:
        predict_images(threshold_model(RECIPES["stored"]), find_images([tmp_path / "in"], 1), tmp_path / "out")
    assert "the grid of the image: shape.0: " in caught.value.problems[0]


def test_one_volume_is_in_memory_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "in").mkdir()
    for name in ("a", "b", "c"):
        write_blobs(tmp_path / "in" / f"{name}.nii.gz", (8, 8, 4))
    alive: list[weakref.ref[Any]] = []
    read, prepare, pieces = predict.read_image, Model.prepare, Model.pieces

    def watched_read(path: Path) -> Any:
        assert not any(reference() is not None for reference in alive)
        volume = read(path)
        alive.append(weakref.ref(volume))
        return volume

    def watched_prepare(*arguments: Any) -> Any:
        prepared, geometry = prepare(*arguments)
        alive.append(weakref.ref(prepared))
        return prepared, geometry

    def watched_pieces(*arguments: Any) -> Any:
        assert alive[-2]() is None  # the image as it was read is not kept while the network works
        given: list[weakref.ref[Any]] = []
        for piece in pieces(*arguments):
            assert all(before() is None for before in given[:-1])  # nor any plane but the last
            given.append(weakref.ref(piece.prediction))
            yield piece
            del piece

    monkeypatch.setattr(predict, "read_image", watched_read)
    monkeypatch.setattr(Model, "prepare", watched_prepare)
    monkeypatch.setattr(Model, "pieces", watched_pieces)
    predict_images(threshold_model(RECIPES["stored"]), find_images([tmp_path / "in"], 1), tmp_path / "out")
    assert len(alive) == 6


@pytest.mark.parametrize("damaged", ["[]", '{"outputs": 3}', "{"])
def test_a_damaged_record_of_a_prediction_is_said(damaged: str, tmp_path: Path) -> None:
    write_blobs(tmp_path / "a.nii.gz", (8, 8, 4))
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / predict.RECORD).write_text(damaged)
    with pytest.raises(InputError, match=r"prediction\.json (is damaged|cannot be read)"):
        predict_images(threshold_model(RECIPES["stored"]), find_images([tmp_path / "a.nii.gz"], 1), tmp_path / "out")


def test_a_name_that_is_too_long_for_its_maps_is_said(tmp_path: Path) -> None:
    for name in ("y" * 248, "z"):
        write_blobs(tmp_path / f"{name}.nii.gz", (8, 8, 4))
    images = find_images([tmp_path], 1)
    with pytest.raises(InputError, match="1 of 2 images were segmented") as error:
        predict_images(threshold_model(RECIPES["stored"]), images, tmp_path / "out")
    assert "File name too long" in str(error.value)
    assert (tmp_path / "out" / "z_label.nii.gz").exists()


def test_a_single_slice_stays_a_single_slice(tmp_path: Path) -> None:
    nib.save(
        nib.Nifti1Image(np.random.default_rng(0).random((16, 20)).astype(np.float32), np.eye(4)), tmp_path / "s.nii"
    )
    predict_images(threshold_model(RECIPES["stored"]), find_images([tmp_path / "s.nii"], 1), tmp_path / "out")
    assert nib.load(tmp_path / "out" / "s_label.nii.gz").shape == (16, 20)


def test_load_and_command_line_agree(run: Path, store: Store, tmp_path: Path, capsys: Any) -> None:
    raw = sorted((store.path.parent / "raw" / "TrainingImg").glob("*.nii.gz"))[:2]
    assert main(["predict", str(run), *map(str, raw), "--out", str(tmp_path / "out"), "--device", "cpu"]) == 0
    assert len(list((tmp_path / "out").glob("*.nii.gz"))) == 8
    model = crac.load(run)
    labels, probabilities = model.predict(raw[0])
    name = raw[0].name.removesuffix("_0000.nii.gz")
    np.testing.assert_array_equal(nib.load(tmp_path / "out" / f"{name}_label.nii.gz").get_fdata(), labels)
    assert probabilities.shape[0] == store.num_classes
    shutil.copytree(run, tmp_path / "moved")  # the same model elsewhere goes on where it was
    assert main(["predict", str(tmp_path / "moved"), *map(str, raw), "--out", str(tmp_path / "out")]) == 0
    assert "2 images finished before" in capsys.readouterr().out
    assert main(["predict", str(run / "best.safetensors"), str(raw[0]), "--out", str(tmp_path / "tta"), "--tta"]) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["predict", "nowhere", "x.nii", "--out", "out"], "nowhere: no such run"),
        (["predict", "RUN", "x.nii", "--out", "out"], "x.nii is missing"),
        (["predict", "RUN", "x.nii", "--out", "out", "--device", "tpu9"], "device must be auto, cpu or"),
        (["predict", ".", "x.nii", "--out", "out"], "best.safetensors is missing"),
        (["predict", "RUN", "x.nii", "--out", "out", "--batch-size", "0"], "batch_size must be a whole number of"),
        (["evaluate", "RUN", "--out", "out", "--batch-size", "0"], "batch_size must be a whole number of"),
        (["evaluate", "RUN", "--out", "out", "--data", "nowhere"], "nowhere is not a prepared store"),
        (["evaluate", "--out", "out"], "give either RUN, or both --probabilities and --labels"),
        (["evaluate", "RUN", "--labels", "x", "--out", "out"], "give either RUN"),
        (["evaluate", "RUN", "--class-names", "x", "y", "--out", "out"], "--class-names goes with --probabilities"),
        (["evaluate", "RUN", "--ignore-index", "0", "--out", "out"], "--ignore-index goes with --probabilities"),
        *(
            (["evaluate", "--probabilities", "x", "--labels", "x", *more, "--out", "out"], f"{more[0]} goes with RUN")
            for more in (
                ["--split", "test"],
                ["--device", "cuda"],
                ["--checkpoint", "last"],
                ["--no-calibration"],
                ["--batch-size", "3"],
                ["--mirror"],
                ["--no-guarantees"],
            )
        ),
    ],
)
def test_bad_input_is_one_sentence(
    arguments: list[str], message: str, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert main([str(run) if argument == "RUN" else argument for argument in arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error
    assert not list(tmp_path.iterdir())
