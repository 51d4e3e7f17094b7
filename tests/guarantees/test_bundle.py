"""All guarantees together: the same as one by one, there and back through a file, and in words."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.guarantees.volumes import CLASSES, patients

import crac
from crac.errors import InputError
from crac.guarantees.words import LIMITS, promises

NAMES = ["background", "liver", "tumour"]


@pytest.fixture(scope="module")
def cases() -> list[crac.Case]:
    return patients(24)


@pytest.fixture(scope="module")
def fitted(cases: list[crac.Case]) -> crac.Guarantees:
    return crac.Guarantees(CLASSES, 0.2, class_names=NAMES).fit(iter(cases))


def test_the_same_as_one_by_one(cases: list[crac.Case], fitted: crac.Guarantees) -> None:
    for one, values in (
        (crac.RiskControl(CLASSES, 0.2).fit(cases).thresholds, fitted.possible.thresholds),
        (crac.RiskControl(CLASSES, 0.2, "fdr").fit(cases).thresholds, fitted.certain.thresholds),
        (crac.Margin(CLASSES, 0.2).fit(cases).millimetres, fitted.margin.millimetres),
        (crac.VolumeInterval(CLASSES, 0.2).fit(cases).above, fitted.volume.above),
    ):
        torch.testing.assert_close(one, values, equal_nan=True, rtol=0, atol=0)
    assert crac.Referral(CLASSES, 0.2).fit(cases).threshold == fitted.referral.threshold
    assert fitted.patients == [case.patient for case in cases]


def test_there_and_back(cases: list[crac.Case], fitted: crac.Guarantees, tmp_path: Path) -> None:
    few = crac.Guarantees(CLASSES, 0.1, unit="worst", scale="estimate", score="volume_uncertainty").fit(cases[:3])
    given = cases[0].probabilities, cases[0].spacing
    for number, one in enumerate((fitted, few)):
        one.fitted["note"] = "kept"
        one.save(tmp_path / f"{number}.json")
        again = crac.load_guarantees(tmp_path / f"{number}.json")
        np.testing.assert_array_equal(again.possible(given[0]), one.possible(given[0]))
        np.testing.assert_array_equal(again.certain(given[0]), one.certain(given[0]))
        np.testing.assert_array_equal(again.margin(*given), one.margin(*given))
        np.testing.assert_array_equal(again.volume.predict(*given), one.volume.predict(*given))
        assert again.referral.predict(given[0]) == one.referral.predict(given[0])
        assert again.patients == one.patients
        assert again.fitted == one.fitted
        assert promises(again) == promises(one)
        assert (again.unit, again.alpha, again.class_names) == (one.unit, one.alpha, one.class_names)


def test_in_words(cases: list[crac.Case], fitted: crac.Guarantees) -> None:
    said = promises(fitted)
    assert sum(sentence.startswith("liver: ") for sentence in said) == 5
    assert "on average, 80 % of it has a probability of at least" in said[0]
    assert "(24 patients)" in said[0]
    assert said[-1].startswith("flags: at most 20 % of patients have a Dice below 0.7 and no flag")
    few = promises(crac.Guarantees(CLASSES, 0.05).fit(cases[:3]))
    assert all("at least 19 are needed" in sentence for sentence in few)
    assert "say nothing about one patient" in LIMITS


def test_every_promise_says_how_many_patients_it_rests_on(cases: list[crac.Case]) -> None:
    without = [case._replace(labels=np.where(case.labels == 2, 0, case.labels)) for case in cases[:12]]
    said = promises(crac.Guarantees(CLASSES, 0.2).fit([*without, *cases[12:]]))[5:10]
    # A patient without the class is missed in nothing, but shows what is wrong.
    assert [sentence.rpartition("(")[2] for sentence in said] == [
        f"{number} patients)" for number in (12, 24, 12, 24, 24)
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 99}, "upgrade crac"),
        ({"possible": {}}, "reasons is missing"),
        ({"num_classes": 5}, "class_names must be 5 names"),
        ({"alpha": 2}, "alpha must be a number between 0 and 1"),
        ({"options": {"colour": 1}}, "colour"),
        ({"volume": {"below": [1], "above": [1], "patients": [1], "reasons": {}}}, "below must hold 3 numbers"),
        ({"referral": []}, "holds no guarantees"),
    ],
)
def test_damaged_files(fitted: crac.Guarantees, tmp_path: Path, change: dict[str, object], message: str) -> None:
    fitted.save(tmp_path / "g.json")
    content = json.loads((tmp_path / "g.json").read_text())
    (tmp_path / "g.json").write_text(json.dumps(content | change))
    with pytest.raises(InputError, match=message):
        crac.load_guarantees(tmp_path / "g.json")
    (tmp_path / "g.json").write_text("[1]")
    with pytest.raises(InputError, match="must hold a JSON object"):
        crac.load_guarantees(tmp_path / "g.json")


def test_names_must_be_as_many_as_classes() -> None:
    with pytest.raises(InputError, match="class_names must be 3 names"):
        crac.Guarantees(3, class_names=["a", "b"])
    assert math.isnan(crac.Guarantees(3).possible.thresholds[1])


def test_numbers_of_numpy_for_classes_and_patients(cases: list[crac.Case], tmp_path: Path) -> None:
    numbered = (case._replace(patient=number) for case, number in zip(cases, np.arange(100, 124), strict=True))
    found = crac.Guarantees(np.int64(CLASSES), 0.2).fit(numbered)
    found.save(tmp_path / "g.json")
    again = crac.load_guarantees(tmp_path / "g.json")
    assert again.patients == found.patients == [str(number) for number in range(100, 124)]
    assert again.num_classes == CLASSES


def test_what_was_not_fitted_is_not_saved(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="guarantees must be fitted on at least one patient before they are saved"):
        crac.Guarantees(CLASSES).save(tmp_path / "g.json")
    assert not list(tmp_path.iterdir())
