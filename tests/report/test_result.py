"""Results read from folders, compared and made anonymous."""

import json
import shutil

import pytest
from tests.report.evaluations import NAUGHTY

from crac.errors import InputError
from crac.metrics import paired_bootstrap
from crac.report.measure import Measure
from crac.report.result import Result, check_comparable, difference, without_names


def test_what_is_no_result_is_refused(folders, tmp_path):
    with pytest.raises(InputError, match=r"must be a folder written by crac evaluate; it has no summary\.json"):
        Result.read(tmp_path)
    copy = tmp_path / "copy"
    shutil.copytree(folders(), copy)
    summary = json.loads((copy / "summary.json").read_text())
    for content, message in (
        ({"crac": "0.2.0", "unfinished": True}, "it lacks patients, per_volume, pooled, settings, volumes"),
        ([], "it lacks patients"),
        (3, "not iterable"),
        ({key: value for key, value in summary.items() if key != "over_patients"}, "run crac evaluate again"),
    ):
        (copy / "summary.json").write_text(json.dumps(content))
        with pytest.raises(InputError, match=f"copy does not hold the results of crac evaluate: .*{message}"):
            Result.read(copy)
    (copy / "summary.json").write_text(json.dumps(summary))
    (copy / "per_volume.csv").write_text("volume,patient,dsc\na,b,much\n")
    with pytest.raises(InputError, match="could not convert"):
        Result.read(copy)


def test_differences_are_of_the_patients_in_common(folders):
    sharp, soft = Result.read(folders(), "sharp"), Result.read(folders(10, 2.0), "soft")
    measure = Measure("ece[band]", "ECE")
    found = difference(soft, sharp, measure)
    assert found.patients == 8
    own, its = soft.by_patient(measure.key), sharp.by_patient(measure.key)
    expected = paired_bootstrap([own[name] for name in its], list(its.values()))
    assert (found.estimate, found.low, found.high) == pytest.approx(tuple(expected))


def test_results_measured_otherwise_are_not_compared(folders):
    first = Result.read(folders(), "first")
    settings = {**first.summary["settings"], "unit": "voxel"}
    other = Result("other", {**first.summary, "settings": settings}, first.rows)
    grid = Result("other", {**first.summary, "settings": {**first.summary["settings"], "grid": "prepared"}}, first.rows)
    with pytest.raises(InputError, match="first and other cannot be compared: grid is 'native' and 'prepared'"):
        check_comparable([first, grid])
    with pytest.raises(InputError, match="first and other cannot be compared: unit is 'mm' and 'voxel'"):
        check_comparable([first, other])
    stranger = Result("other", first.summary, [{**row, "patient": "somebody else"} for row in first.rows])
    with pytest.raises(InputError, match="they have no patient in common"):
        check_comparable([first, stranger])
    settings = {**first.summary["settings"], "masks": ["all"]}
    masked = Result("other", {**first.summary, "settings": settings}, first.rows)
    check_comparable([first, masked])


def test_without_names_patients_are_numbered_alike_in_all_results(folders):
    sharp, soft = Result.read(folders(), "sharp"), Result.read(folders(10, 2.0), "soft")
    measure = Measure("ece[band]", "ECE")
    hidden = without_names([sharp, soft])
    assert difference(hidden[1], hidden[0], measure) == difference(soft, sharp, measure)
    assert sorted(int(row["patient"]) for row in hidden[1].rows) == list(range(1, 11))
    assert all(row["volume"] == f"{row['patient']}.1" for row in hidden[0].rows)
    assert not hidden[0].views
    assert NAUGHTY not in json.dumps([hidden[0].summary, hidden[0].rows])
    assert "secret" not in json.dumps(hidden[0].summary)
