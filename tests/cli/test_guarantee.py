"""Guarantees of models that only left files: fitted, said in words, and measured on other patients."""

import csv
import json
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import pytest
from tests.guarantees.volumes import patient

import crac
from crac.cli import main

NAMES = ["background", "liver", "tumour"]
AFFINE = np.diag([2.0, 1.0, 1.5, 1.0])


def folders(place: Path, seeds: range, name: str = "case_{}") -> list[str]:
    """Two folders of NIfTI files, as options."""
    for kind in ("probabilities", "labels"):
        (place / kind).mkdir(parents=True)
    for seed in seeds:
        case = patient(seed)
        for kind, array in (("probabilities", np.moveaxis(case.probabilities, 0, 3)), ("labels", case.labels)):
            nib.Nifti1Image(array, AFFINE).to_filename(place / kind / f"{name.format(seed)}.nii.gz")
    return ["--probabilities", str(place / "probabilities"), "--labels", str(place / "labels"), "--jobs", "1"]


@pytest.fixture(scope="module")
def calibration(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return folders(tmp_path_factory.mktemp("calibration"), range(16))


def test_what_is_written_is_what_the_library_fits(calibration: list[str], tmp_path: Path, capsys: Any) -> None:
    out = tmp_path / "guarantees.json"
    assert main(["guarantee", *calibration, "--alpha", "0.2", "--out", str(out), "--class-names", *NAMES]) == 0
    said = capsys.readouterr().out.splitlines()
    found = crac.load_guarantees(out)
    cases = [patient(seed) for seed in range(16)]
    np.testing.assert_array_equal(found.possible.thresholds, crac.RiskControl(3, 0.2).fit(cases).thresholds)
    np.testing.assert_allclose(found.margin.millimetres, crac.Margin(3, 0.2).fit(cases).millimetres)
    np.testing.assert_allclose(found.volume.above, crac.VolumeInterval(3, 0.2).fit(cases).above, rtol=1e-6)
    assert (found.class_names, len(found.patients), found.alpha) == (NAMES, 16, 0.2)
    assert said[0].startswith("liver: on average, 80 % of it has a probability of at least")
    assert "say nothing about one patient, or another hospital" in said[-2]
    assert said[-1] == f"written to {out}"


def test_json_and_too_few_patients(tmp_path: Path, capsys: Any) -> None:
    given = folders(tmp_path, range(4), "p{}_scan")
    out = tmp_path / "guarantees.json"
    assert main(["guarantee", *given, "--out", str(out), "--patient", "p[01]|p", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found == json.loads(out.read_text())
    assert sorted(found["patients"]) == ["p", "p0", "p1"]
    assert found["fitted"]["volumes"] == 4
    assert found["possible"]["thresholds"] == [None] * 3
    assert main(["guarantee", *given, "--out", str(out)]) == 0
    said = capsys.readouterr().out
    assert said.count("4 calibration patients cannot promise a risk of 0.1; at least 9 are needed") == 9
    assert "has a probability of at least" not in said


def test_evaluate_measures_what_came_of_it(calibration: list[str], tmp_path: Path, capsys: Any) -> None:
    promised = tmp_path / "guarantees.json"
    assert main(["guarantee", *calibration, "--alpha", "0.2", "--out", str(promised), "--class-names", *NAMES]) == 0
    given = folders(tmp_path, range(100, 112))
    out = tmp_path / "audit"
    more = ["--guarantees", str(promised), "--class-names", *NAMES, "--out", str(out)]
    capsys.readouterr()
    assert main(["evaluate", *given, *more]) == 0
    said = capsys.readouterr().out
    assert "liver, volume: " in said
    assert "80 % were promised" in said
    summary = json.loads((out / "summary.json").read_text())
    assert summary["source"]["guarantees"] == str(promised)
    assert {"guarantees.csv", "per_volume.csv"} < set(summary["files"])
    block = summary["guarantees"]
    assert (block["alpha"], block["patients"], block["calibration_patients"]) == (0.2, 12, 16)
    with (out / "guarantees.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 24

    found = crac.load_guarantees(promised)
    cases = [patient(seed) for seed in range(100, 112)]
    for number, name in ((1, "liver"), (2, "tumour")):
        own = block["by_class"][name]
        missed, covered, reached = [], [], []
        for case in cases:
            label = case.labels == number
            missed.append((label & ~found.possible(case.probabilities)[number]).sum() / label.sum())
            _, low, high = found.volume.predict(case.probabilities, case.spacing)[number]
            covered.append(low <= label.sum() * 0.003 <= high)
            reached.append((found.margin(case.probabilities, case.spacing)[number] | ~label).all())
        assert own["possible"]["realised"] == pytest.approx(np.mean(missed))
        assert own["volume"]["realised"] == pytest.approx(np.mean(covered))
        assert own["margin"]["realised"] == pytest.approx(np.mean(reached))
        assert own["volume"]["interval"][0] < own["volume"]["realised"] <= own["volume"]["interval"][1]
        assert own["volume"]["argmax_error_ml"] > 0
    referral = block["referral"]
    assert len(referral["risk"]) == len(referral["coverage"]) == 12
    assert referral["area_best"] <= referral["area"]


@pytest.mark.parametrize(("fitted", "measured"), [(NAMES, []), ([], NAMES), (NAMES, NAMES)])
def test_classes_that_are_named_once_have_one_name_everywhere(
    calibration: list[str], tmp_path: Path, capsys: Any, fitted: list[str], measured: list[str]
) -> None:
    promised, out = tmp_path / "guarantees.json", tmp_path / "audit"
    options = [["--class-names", *names] if names else [] for names in (fitted, measured)]
    assert main(["guarantee", *calibration, "--alpha", "0.2", "--out", str(promised), *options[0]]) == 0
    given = [*folders(tmp_path, range(100, 103)), "--guarantees", str(promised)]
    assert main(["evaluate", *given, "--out", str(out), *options[1]]) == 0
    summary = json.loads((out / "summary.json").read_text())
    assert summary["settings"]["class_names"] == NAMES
    assert list(summary["guarantees"]["by_class"]) == NAMES[1:]
    page = (out / "report.html").read_text()
    for name in NAMES[1:]:  # the volumes of each are drawn
        assert f"{name}: estimated volumes and their intervals" in page
    assert "liver, volume: " in capsys.readouterr().out


def test_classes_with_other_names_than_the_guarantees_are_refused(
    calibration: list[str], tmp_path: Path, capsys: Any
) -> None:
    promised = tmp_path / "guarantees.json"
    assert main(["guarantee", *calibration, "--out", str(promised), "--class-names", *NAMES]) == 0
    given = [*folders(tmp_path, range(100, 103)), "--guarantees", str(promised), "--out", str(tmp_path / "audit")]
    assert main(["evaluate", *given, "--class-names", "background", "tumour", "liver"]) == 2
    said = capsys.readouterr().err
    assert "must be those of the guarantees, background, liver, tumour; got background, tumour, liver" in said
    assert "measuring" not in said


def test_calibration_patients_prove_nothing(calibration: list[str], tmp_path: Path, capsys: Any) -> None:
    promised = tmp_path / "guarantees.json"
    assert main(["guarantee", *calibration, "--out", str(promised)]) == 0
    more = ["--guarantees", str(promised), "--out", str(tmp_path / "audit")]
    assert main(["evaluate", *calibration, *more]) == 2
    said = capsys.readouterr().err
    assert "cannot be measured on the patients they were fitted on: case_0, case_1, case_10 and 13 more" in said
    assert "measuring" not in said  # before the long work
    assert not (tmp_path / "audit").exists()


def test_calibration_volumes_are_known_by_their_names_too(calibration: list[str], tmp_path: Path, capsys: Any) -> None:
    """Another pattern, or a forgotten one, makes other patients of the same files."""
    promised = tmp_path / "guarantees.json"
    assert main(["guarantee", *calibration, "--out", str(promised), "--patient", "[0-9]+"]) == 0
    for pattern in ([], ["--patient", "_.*"]):
        assert (
            main(["evaluate", *calibration, "--guarantees", str(promised), "--out", str(tmp_path / "a"), *pattern]) == 2
        )
        assert "on the patients they were fitted on: case_0, case_1," in capsys.readouterr().err


def test_guarantees_for_other_classes_are_refused_before_the_long_work(
    calibration: list[str], tmp_path: Path, capsys: Any
) -> None:
    crac.Guarantees(2).fit(patient(seed)._replace(
        probabilities=np.stack([patient(seed).probabilities[:2].sum(0), patient(seed).probabilities[2]]),
        labels=(patient(seed).labels == 2).astype(np.uint8),
    ) for seed in range(3)).save(tmp_path / "g.json")  # fmt: skip
    assert main(["evaluate", *calibration, "--guarantees", str(tmp_path / "g.json"), "--out", str(tmp_path / "a")]) == 2
    said = capsys.readouterr().err
    assert "guarantees are for 2 classes; " in said
    assert "measuring" not in said


def test_a_volume_that_nobody_has_labelled_counts_for_nothing(tmp_path: Path, capsys: Any) -> None:
    both = [folders(tmp_path / part, seeds) for part, seeds in (("c", range(12)), ("t", range(20, 27)))]
    for part in ("c/labels/case_3", "t/labels/case_22"):
        file = tmp_path / f"{part}.nii.gz"
        nib.Nifti1Image(np.full(nib.load(file).shape, 9, np.uint8), AFFINE).to_filename(file)
    out, ignored = tmp_path / "g.json", ["--ignore-index", "9"]
    assert main(["guarantee", *both[0], *ignored, "--out", str(out)]) == 0
    found = crac.load_guarantees(out)
    assert "case_3" not in found.patients
    known = [patient(seed) for seed in range(12) if seed != 3]
    np.testing.assert_array_equal(found.possible.thresholds, crac.RiskControl(3, 0.1).fit(known).thresholds)
    unlabelled = patient(3)._replace(labels=np.full_like(patient(3).labels, 9), ignore_index=9)
    again = crac.RiskControl(3, 0.1).fit([*known, unlabelled])
    np.testing.assert_array_equal(found.possible.thresholds, again.thresholds)
    assert main(["evaluate", *both[1], *ignored, "--guarantees", str(out), "--out", str(tmp_path / "a")]) == 0
    summary = json.loads((tmp_path / "a" / "summary.json").read_text())["guarantees"]
    assert (summary["volumes"], summary["patients"]) == (6, 6)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--alpha", "1.5", "--out", "g.json"], "alpha must be a number between 0 and 1"),
        (["--alpha", "1e-320", "--out", "g.json"], "of at least 1e-9; got 1e-320"),
        ([], "--out must be a file in a folder that exists"),
        (["--out", "g.json", "--split", "test", "--device", "no"], "--split, --device go with RUN"),
        (["--out", "g.json", "--patient", "patient"], "patient must match the name of every volume"),
        (["--out", "g.json", "--class-names", "a"], "class_names must be 3 names"),
        (["--out", "g.json", "--class-names", "a", "b", "b"], "class_names must be different names"),
    ],
)
def test_bad_arguments_are_one_sentence(
    calibration: list[str], arguments: list[str], message: str, tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["guarantee", *calibration, *arguments]) == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_one_source_is_asked_for(capsys: Any) -> None:
    assert main(["guarantee"]) == 2
    assert "give either RUN, or both --probabilities and --labels" in capsys.readouterr().err


def test_archives_whose_properties_are_lost_need_a_word(tmp_path: Path, capsys: Any) -> None:
    affine = np.diag([-2.0, -1.0, 1.5, 1.0])
    for kind in ("probabilities", "labels"):
        (tmp_path / kind).mkdir()
    cases = [patient(seed) for seed in range(9)]
    for number, case in enumerate(cases):
        turned = np.ascontiguousarray(case.probabilities.transpose(0, 3, 2, 1))
        np.savez(tmp_path / "probabilities" / f"case_{number}.npz", probabilities=turned)
        nib.Nifti1Image(case.labels, affine).to_filename(tmp_path / "labels" / f"case_{number}.nii.gz")
    given = ["--probabilities", str(tmp_path / "probabilities"), "--labels", str(tmp_path / "labels"), "--jobs", "1"]
    given += ["--out", str(tmp_path / "guarantees.json")]
    assert main(["guarantee", *given]) == 2
    assert "orientation cannot be known" in capsys.readouterr().err
    assert main(["guarantee", *given, "--orientation", "stored"]) == 0
    found = crac.load_guarantees(tmp_path / "guarantees.json")
    np.testing.assert_array_equal(found.possible.thresholds, crac.RiskControl(3, 0.1).fit(cases).thresholds)
