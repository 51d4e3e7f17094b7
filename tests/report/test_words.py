"""Verdicts claim what intervals show and nothing else."""

import pytest

from crac.report.measure import Difference, Measure
from crac.report.result import Result, difference
from crac.report.words import calibrated, column, points, shift, verdict


def result(patients, gap, inner=(0.0, -0.1, 0.1), outer=(0.0, -0.1, 0.1)):
    columns = {
        "dsc": (0.9, 0.8, 0.95),
        "ece[all]": (0.2, 0.1, 0.3),
        "gap[all]": gap,
        "gap.inner[all]": inner,
        "gap.outer[all]": outer,
    }
    few = patients < 6
    over = {
        name: {"mean": mean, "low": None if few else low, "high": None if few else high}
        for name, (mean, low, high) in columns.items()
    }
    return Result("x", {"patients": patients, "over_patients": over}, [])


@pytest.mark.parametrize(
    ("gap", "words"),
    [
        (
            (0.05, 0.02, 0.08),
            "This model is overconfident: its confidence lies 5.0 percentage points above its",
        ),
        ((-0.05, -0.08, -0.02), "This model is underconfident: its confidence lies 5.0 percentage points below"),
        ((0.05, -0.01, 0.1), "no over- or underconfidence is shown: confidence minus accuracy is +5.0 percentage"),
    ],
)
def test_overconfident_needs_an_interval_that_leaves_out_0(gap, words):
    first, second = verdict([result(6, gap)], "all", [])
    assert words in first
    assert "(95 % interval" in first
    neither = "no over- or underconfidence is shown (0.0 percentage points)"
    assert second.startswith(f"Inside structures {neither}, on boundaries {neither}; ")
    assert second.endswith("overlap with the labels by a Dice of 0.900.")


def test_gaps_that_cancel_do_not_pass_for_calibration():
    first, _ = verdict([result(6, (0.0, -0.01, 0.01))], "all", [])
    assert first.endswith("at single levels of confidence the two are 20.0 percentage points apart, on average.")


def test_regions_are_judged_by_their_own_intervals():
    _, second = verdict([result(6, (0.05, 0.02, 0.08), (-0.01, -0.02, -0.005), (0.1, 0.08, 0.12))], "all", [])
    assert second.startswith(
        "Inside structures it is underconfident (-1.0 percentage points), on boundaries it is overconfident (+10.0"
    )
    _, second = verdict([result(6, (0.05, 0.02, 0.08), (-2e-5, -3e-5, -1e-5), (0.1, 0.08, 0.12))], "all", [])
    assert second.startswith("Inside structures no over- or underconfidence is shown (0.0 percentage points), on")


def test_an_end_of_an_interval_that_is_shown_as_0_claims_nothing():
    first, _ = verdict([result(6, (0.001, 0.0002, 0.002))], "all", [])
    assert first.startswith("On the whole no over- or underconfidence is shown")
    moved = Difference(Measure("gap[all]", "gap", 3, None, signed=True), 0.0004, 0.0001, 0.0008, 20)
    assert (moved.interval, shift(moved)) == ("0.000 [0.000, +0.001]", "no significant difference")
    assert shift(moved._replace(low=0.0006)) == "higher"
    assert shift(moved._replace(low=float("nan"), high=float("nan"))) == "no significant difference"


def test_a_dice_that_nobody_knows_is_not_spoken_of():
    for patients in (3, 6):
        own = result(patients, (0.05, 0.02, 0.08))
        del own.summary["over_patients"]["dsc"]
        assert "nan" not in " ".join(verdict([own], "all", []))


@pytest.mark.parametrize("patients", [1, 2, 5])
def test_of_few_patients_nothing_is_claimed(patients):
    text = " ".join(verdict([result(patients, (0.05, 0.02, 0.08), outer=(0.1, 0.08, 0.12))], "all", []))
    assert "too few" in text
    assert "claims nothing beyond them" in text
    assert "confident" not in text.replace("confidence", "")
    assert "interval (" not in text


def test_of_many_patients_only_those_with_a_value_count():
    own = result(8, (0.05, None, None))
    own.summary["over_patients"]["gap[all]"]["patients"] = 4
    assert verdict([own], "all", [])[0].startswith("4 patients are too few for an interval or a comparison (at least 6")


def test_means_and_their_difference_are_of_the_same_patients(folders):
    """Two folders that share some patients: what is said of both holds for these."""
    sharp, soft = Result.read(folders(), "sharp"), Result.read(folders(10, 2.0), "soft")
    measures = [Measure("ece[band]", "ECE"), Measure("dsc", "Dice", 3, True)]
    said = verdict([soft, sharp], "band", [[difference(sharp, soft, measure) for measure in measures]])
    own, its = (one.by_patient("ece[band]") for one in (sharp, soft))
    shared = sorted(own.keys() & its.keys())
    assert 0 < len(shared) < len(its)
    means = [measures[0].shown(sum(one[name] for name in shared) / len(shared)) for one in (own, its)]
    first = f"On the {len(shared)} patients that both have, the calibration error (ECE) is "
    assert said[0].startswith(f"{first}{means[0]} for sharp against {means[1]} for soft (difference ")


def test_a_calibrator_that_was_not_taken_is_not_called_the_models_own():
    assert calibrated("x", "class", "class").startswith("x: the calibrator is class. The table is its worth on")
    assert calibrated("x", "identity", "class").startswith(
        "x: class was tried and not taken, the calibrator is identity"
    )


def test_points_have_a_sign_unless_they_are_0():
    assert [points(value) for value in (0.0512, -0.0512, 0.0004, -0.0004)] == [
        *("+5.1 percentage points", "-5.1 percentage points", "0.0 percentage points", "0.0 percentage points"),
    ]


def test_columns_have_names_in_words():
    assert column("ece.inner[band]") == "ECE, inside structures, near foreground"
    assert column("nll[all]") == "NLL, everywhere"
    assert [column(key) for key in ("dsc", "ece[mine]", "x.y[band]")] == ["dsc", "ece[mine]", "x.y[band]"]
