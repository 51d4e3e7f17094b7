"""What guarantees promised stands beside what came of it."""

import csv
import shutil
from xml.etree import ElementTree

import pytest
from tests.report.evaluations import CLASSES
from tests.report.test_page import page_of

from crac.files import read_json, write_json
from crac.metrics.claims import LEAST_PATIENTS
from crac.report.promises import promises
from crac.report.result import Result, without_names


def coverage(realised, low, high, patients=20, reason=None, **more):
    low, high = (low, high) if patients >= LEAST_PATIENTS else (None, None)
    return {"reason": reason, "realised": realised, "interval": [low, high], "patients": patients, **more}


def block(patients=20):
    own = {
        "possible": coverage(0.25, 0.2, 0.3, patients, threshold=0.1, size_ml=12.0, size_share=1.5, argmax=0.2),
        "certain": coverage(0.05, 0.02, 0.15, patients, threshold=0.9, size_ml=4.0, size_share=0.5, argmax=0.2),
        "margin": coverage(0.7, 0.5, 0.85, patients, millimetres=3.25),
        "core": coverage(None, None, None, 0, "1 patient cannot show 90 %", millimetres=None),
        "volume": coverage(0.95, 0.75, 1.0, patients, width_ml=2.5, width_share=0.3),
    }
    referral = {
        "score": "expected_dice", "acceptable": 0.7, "reason": None, "flagged": 0.25, "bad": 0.1,
        "bad_and_not_flagged": 0.0, "area": 0.1, "area_best": 0.05, "area_chance": 0.2,
        "coverage": [0.5, 1.0], "risk": [0.1, 0.2],
    }  # fmt: skip
    classes = dict.fromkeys(CLASSES[1:], own)
    numbers = {"alpha": 0.1, "unit": "mean", "calibration_patients": 30, "patients": patients, "volumes": patients}
    return {**numbers, "by_class": classes, "referral": referral}


def with_promises(evaluated, folder):
    """Copy a folder and add guarantees, as ``crac evaluate`` leaves it."""
    shutil.copytree(evaluated, folder)
    write_json(folder / "summary.json", {**read_json(folder / "summary.json"), "guarantees": block()})
    columns = ("true_ml", "estimate_ml", "low_ml", "high_ml", "interval_misses")
    with (folder / "guarantees.csv").open("w") as file:
        writer = csv.writer(file)
        writer.writerow(["volume", "patient", "class", *columns])
        for place, row in enumerate(Result.read(evaluated).rows):
            numbers = [10, 11, 9, 12, 0] if place else [10, 14, 12, "inf", 1]
            writer.writerows([row["volume"], row["patient"], name, *numbers] for name in CLASSES[1:])
    return folder


@pytest.fixture
def promised(folders, tmp_path):
    return with_promises(folders(), tmp_path / "promised")


def test_a_promise_is_broken_only_where_the_whole_interval_says_so(promised):
    found = promises(Result.read(promised, "x"))
    rows = found["rows"][:5]
    assert [row["verdict"] for row in rows] == [
        *("not kept", "in line with the promise", "not kept", "", "in line with the promise"),
    ]
    assert [row["realised"] for row in rows[:3]] == ["25.0 % [20.0, 30.0]", "5.0 % [2.0, 15.0]", "70.0 % [50.0, 85.0]"]
    assert rows[2]["promise"].endswith("in at least 90 % of patients (3.2 mm)")
    assert rows[3]["promise"] == "nothing is promised: 1 patient cannot show 90 %"


def test_few_patients_judge_nothing(promised):
    result = Result.read(promised, "x")
    few = promises(Result("x", {**result.summary, "guarantees": block(3)}, result.rows))
    assert {row["verdict"] for row in few["rows"]} == {"too few patients to judge", ""}
    assert few["rows"][0]["realised"] == "25.0 %"


def test_volumes_are_drawn_with_their_intervals(promised):
    result = Result.read(promised, "x")
    first = promises(result)["volumes"][0]
    assert first["words"] == "7 of 8 intervals hold the true volume."
    dots = list(ElementTree.fromstring(str(first["drawn"])).iter("circle"))
    assert len(dots) == 8
    assert "11.00 ml [9.00, 12.00], true 10.00 ml" in dots[1].find("title").text
    assert ["c1" in dot.attrib["class"] for dot in dots] == [True] + [False] * 7
    (hidden,) = without_names([result])
    assert {row["volume"] for row in hidden.promised} == {row["volume"] for row in hidden.rows}


def test_the_page_has_the_section_where_there_are_promises(promised, folders):
    _, page = page_of(Result.read(promised, "x"))
    assert "promises" in page.ids
    assert "At a level of 90 %, fitted on 30 patients, measured on 20." in page.text
    assert "Area under the curve: 0.100 by the model's own doubt, 0.050 at best, 0.200 by chance; 25 %" in page.text
    assert promises(Result.read(folders(), "x")) is None


def test_axes_end_where_they_say(promised):
    """The share of cases ends at all of them, whatever the risk ends at."""
    drawn = ElementTree.fromstring(str(promises(Result.read(promised, "x"))["risk"]))
    assert {"100 %", "0.2", "cases kept"} <= {text.text for text in drawn.iter("text")}
