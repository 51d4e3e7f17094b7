"""Calibration of models that only left files: fitted, judged on patients left out, written."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.cli.foreign import overconfident, write_folders

import crac
from crac.cli import main
from crac.evaluation.crossfit import Gain
from crac.metrics.ranks import Interval
from crac.report.words import column


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    return write_folders(tmp_path)


def calibrate(folders: tuple[Path, Path], *more: str) -> int:
    return main(["calibrate", "--probabilities", str(folders[0]), "--labels", str(folders[1]), *more])


def read(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    return json.loads(capsys.readouterr().out)


def test_a_model_that_is_too_sure_gains(folders: tuple[Path, Path], tmp_path: Path, capsys: Any) -> None:
    out = tmp_path / "calibration.json"
    assert calibrate(folders, "--out", str(out), "--json") == 0
    found = read(capsys)
    assert (found["written"], found["calibrator"]) == (str(out), "class_region")
    gains = {gain["measure"]: gain for gain in found["gains"]["class_region"]}
    assert next(iter(gains)) == "nll[all]"  # the voxels it is fitted on decide
    for mask in ("band", "all", "label_foreground"):
        for measure in ("nll", "brier", "ece", "cece", "ece.inner", "ece.outer"):
            assert f"{measure}[{mask}]" in gains
    assert max(gains[f"nll[{mask}]"]["difference"][2] for mask in ("band", "all")) < 0
    assert gains["ece[band]"]["after"] < gains["ece[band]"]["before"] / 2
    calibrator = crac.load_calibrator(out)
    assert (calibrator.name, calibrator.regions, calibrator.fitted["weight"]) == ("class_region", "volume", "volume")
    assert calibrator.fitted["batches"] == 6
    torch.testing.assert_close(calibrator.temperature, torch.full((3, 2), 3.0).double(), rtol=0.25, atol=0)


def near_and_far(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """An organ beside which a model is too sure of background, and far from which it is not sure enough."""
    x, y, _ = torch.meshgrid(torch.arange(-24, 24), torch.arange(-24, 24), torch.arange(2), indexing="ij")
    distance = torch.maximum(x.abs(), y.abs()) - 4
    zones = [distance <= 0, distance <= 1, distance <= 3]
    true, said = torch.zeros(distance.shape), torch.full(distance.shape, 0.1)
    for zone, rate, claim in zip(reversed(zones), (0.2, 0.2, 0.95), (0.02, 0.2, 0.95), strict=True):
        true[zone], said[zone] = rate, claim
    labels = torch.rand(distance.shape, generator=torch.Generator().manual_seed(seed)) < true
    return torch.stack([1 - said, said]).numpy(), labels.numpy().astype(np.uint8)


def test_likelihood_that_is_given_up_near_organs_is_named_with_what_helps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr("tests.cli.foreign.overconfident", lambda seed, sharp: near_and_far(seed))
    folders, out = write_folders(tmp_path), tmp_path / "c.json"
    advice = "near organs the likelihood is no better"
    assert calibrate(folders, "--out", str(out), "--json") == 0
    worse = {gain["measure"]: gain for gain in read(capsys)["gains"]["class_region"]}
    assert worse["nll[all]"]["difference"][2] < 0 < worse["nll[band]"]["difference"][0]
    assert any(note.startswith(advice) for note in crac.load_calibrator(out).fitted["notes"])
    assert "Near organs the likelihood is no better" in (tmp_path / "c.html").read_text()
    assert calibrate(folders, "--out", str(out), "--json", "--radii", "1", "3") == 0
    better = {gain["measure"]: gain for gain in read(capsys)["gains"]["class_region"]}
    assert better["nll[band]"]["after"] < worse["nll[band]"]["before"]
    assert better["nll[all]"]["after"] < worse["nll[all]"]["after"]
    assert not any(note.startswith(advice) for note in crac.load_calibrator(out).fitted["notes"])


def test_the_page_says_what_was_found(tmp_path: Path, capsys: Any) -> None:
    """Its numbers are those of the file, to the printed digits; it names patients and paths unless told not to."""
    folders, out = write_folders(tmp_path), tmp_path / "c.json"
    names = ["--class-names", "background", "liver", "<spleen>"]
    for anonymous in (False, True):
        more = ["--json", "--folds", "2", *names, *["--anonymous"] * anonymous]
        assert calibrate(folders, "--out", str(out), *more) == 0
        assert read(capsys)["page"] == str(tmp_path / "c.html")
        page = (tmp_path / "c.html").read_text(encoding="utf-8")
        assert [name in page for name in ("case_00", str(folders[0]))] == [not anonymous] * 2
        assert str(tmp_path) not in page or not anonymous
    gains, rows = crac.load_calibrator(out).fitted["gain"], dict(re.findall(r"<tr><th>(.*?)</th>(.*?)</tr>", page))
    for name, gain in gains.items():
        before, after, difference = re.findall(r"<td>(.*?)</td>", rows[column(name)])
        assert [float(before), float(after)] == pytest.approx([gain["before"], gain["after"]], abs=5.1e-5)
        found = [float(value) for value in re.findall(r"[-+]?[0-9.]+", difference)]
        assert found == pytest.approx(gain["difference"], abs=5.1e-5)
    assert "patients left out gain by it, and it was written." in page
    assert "<th>liver</th>" in page
    assert "<spleen>" not in page
    assert f">{crac.load_calibrator(out).temperature[2, 1]:.3g}</td>" in page


def test_what_is_written_is_what_the_library_fits(folders: tuple[Path, Path], tmp_path: Path) -> None:
    assert calibrate(folders, "--out", str(tmp_path / "c.json"), "--regions", "slice", "--method", "region") == 0
    cases = [overconfident(number) for number in range(6)]
    # Slices follow each other along the axis of the largest spacing, the last one.
    batches = [(torch.tensor(p).movedim(3, 0), torch.tensor(y).movedim(2, 0)) for p, y in cases]
    expected = crac.build_calibrator("region", 3).fit(lambda: batches, weight="volume", from_probabilities=True)
    torch.testing.assert_close(crac.load_calibrator(tmp_path / "c.json").weights, expected.weights)


def test_all_voxels_or_those_near_the_foreground(folders: tuple[Path, Path], tmp_path: Path) -> None:
    for mask in ("band", "all"):
        more = ["--method", "temperature", "--folds", "2", "--mask", mask, "--out", str(tmp_path / f"{mask}.json")]
        assert calibrate(folders, *more) == 0
    near, everywhere = (crac.load_calibrator(tmp_path / f"{mask}.json") for mask in ("band", "all"))
    assert (near.fitted["mask"], everywhere.fitted["mask"]) == ("band", "all")
    assert [next(iter(one.fitted["gain"])) for one in (near, everywhere)] == ["nll[band]", "nll[all]"]
    assert everywhere.fitted["voxels"] == 6 * 20 * 18 * 8 >= near.fitted["voxels"]


def test_regions_by_distance(folders: tuple[Path, Path], tmp_path: Path, capsys: Any) -> None:
    out = tmp_path / "calibration.json"
    assert calibrate(folders, "--out", str(out), "--radii", "1", "3", "--folds", "2") == 0
    calibrator = crac.load_calibrator(out)
    assert (calibrator.radii, calibrator.temperature.shape) == ((1, 3), (3, 3))
    assert "within 3 of a boundary" in out.with_suffix(".html").read_text(encoding="utf-8")
    assert calibrate(folders, "--out", str(tmp_path / "c.json"), "--radii", "3", "1") == 2
    assert "radii" in capsys.readouterr().err


@pytest.mark.parametrize("force", [False, True])
def test_without_a_gain_the_identity_is_written_unless_forced(force: bool, tmp_path: Path, capsys: Any) -> None:
    folders = write_folders(tmp_path, sharp=1.0)
    out = tmp_path / "calibration.json"
    assert calibrate(folders, "--out", str(out), *["--force"] * force) == 0
    said = capsys.readouterr().out
    assert "class_region: the interval of nll[all] shows no gain on patients left out" in said
    calibrator = crac.load_calibrator(out)
    assert calibrator.name == ("class_region" if force else "identity")
    assert ("the identity is written to" in said) == (not force)
    assert calibrator.fitted["judged"] == "class_region"
    assert calibrator.fitted["gain"]["nll[all]"]["difference"][2] >= 0
    page = out.with_suffix(".html").read_text(encoding="utf-8")
    assert ("so probabilities stay as they are." in page) == (not force)
    assert ("it was written all the same." in page) == ("The temperatures" in page) == force


def test_volumes_of_one_patient_are_left_out_together(tmp_path: Path, capsys: Any) -> None:
    folders = write_folders(tmp_path, cases=4)
    for place in folders:  # two frames of two patients
        for number, path in enumerate(sorted(place.iterdir())):
            path.rename(place / f"patient{number // 2}_frame{number % 2}.nii.gz")
    arguments = ["--out", str(tmp_path / "c.json"), "--method", "temperature", "--json"]
    assert calibrate(folders, *arguments, "--patient", "patient[0-9]+") == 0
    by_patient = read(capsys)["gains"]["temperature"][0]
    assert calibrate(folders, *arguments) == 0
    assert read(capsys)["gains"]["temperature"][0]["after"] != by_patient["after"]
    assert calibrate(folders, *arguments, "--patient", "frame") == 2
    assert "needs at least 2; got 1" in capsys.readouterr().err
    assert calibrate(folders, *arguments, "--patient", "subject") == 2
    assert "'subject' does not match 'patient0_frame0'" in capsys.readouterr().err
    assert calibrate(folders, *arguments, "--patient", "(") == 2
    assert "patient must be a regular expression; got '('" in capsys.readouterr().err


def test_comparing_writes_nothing(folders: tuple[Path, Path], tmp_path: Path, capsys: Any) -> None:
    assert calibrate(folders, "--compare", "--folds", "2") == 0
    assert "lowest likelihood loss (nll[all]) on patients left out" in capsys.readouterr().out
    assert calibrate(folders, "--compare", "--folds", "2", "--mask", "band") == 0
    assert "lowest likelihood loss (nll[band]) on patients left out" in capsys.readouterr().out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["labels", "probabilities"]


def test_comparing_says_of_the_best_if_it_changes_labels(
    folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    for method, said in (("vector", "vector, which changes labels; to use it"), ("class", "class; to use it")):
        gain = {method: [Gain("nll[all]", 2.0, 1.0, Interval(-1.0, -1.5, -0.5))]}
        monkeypatch.setattr("crac.evaluation.calibrate.compare_calibrators", lambda *_, gain=gain, **__: gain)
        assert calibrate(folders, "--compare") == 0
        assert said in capsys.readouterr().out


def test_comparing_recommends_no_method_that_shows_no_gain(tmp_path: Path, capsys: Any) -> None:
    assert calibrate(write_folders(tmp_path, sharp=1.0), "--compare") == 0
    said = capsys.readouterr().out
    assert "it shows no gain over the probabilities as they are" in said
    assert "to use it" not in said


def test_bad_arguments(folders: tuple[Path, Path], tmp_path: Path, capsys: Any) -> None:
    for more, message in (
        ([], "--out must name the file to write"),
        (["--out", str(tmp_path / "c.html")], "--out must name a JSON file"),
        (["--out", str(tmp_path)], "--out must be a file in a folder that exists"),
        (["--out", str(tmp_path / "no" / "c.json")], "--out must be a file in a folder that exists"),
        (["--out", str(tmp_path / "c.json"), "--mirror", "--batch-size", "-3"], "--mirror, --batch-size go with RUN"),
        (["--out", str(tmp_path / "c.json"), "--folds", "1"], "folds must be a whole number of at least 2; got 1"),
        (
            ["--out", str(tmp_path / "c.json"), "--method", "temperature", "--radii", "1", "3"],
            "--radii is for the methods region, class_region, class_region_affine; got --method temperature",
        ),
    ):
        assert calibrate(folders, *more) == 2
        assert message in capsys.readouterr().err
    assert main(["calibrate", "--probabilities", str(folders[0])]) == 2
    assert "give either RUN, or both --probabilities and --labels" in capsys.readouterr().err
    (folders[0] / "case_00.nii.gz").write_bytes(b"nothing")
    assert calibrate(folders, "--out", str(tmp_path / "c.json")) == 2
    assert "case_00.nii.gz is damaged" in capsys.readouterr().err
    assert not (tmp_path / "c.json").exists()
