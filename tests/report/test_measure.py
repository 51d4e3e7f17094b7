"""How numbers are rounded, and when a difference is called better or worse."""

from math import nan

from crac.report.measure import Difference, Measure

DICE, ECE = Measure("dsc", "DSC", 3, True), Measure("ece", "ECE")


def test_rounding_is_half_up_and_zero_has_no_sign() -> None:
    two = Measure("x", "X", 2)
    assert [two.shown(value) for value in (3.125, 6.625, 0.005, -0.005, 2)] == ["3.13", "6.63", "0.01", "-0.01", "2.00"]
    signed = Measure("x", "X", 3, signed=True)
    assert [signed.shown(value) for value in (0.0304, -0.0305, -0.0001)] == ["+0.030", "-0.031", "0.000"]
    assert signed.shown(0.5, signed=False) == "0.500"


def test_a_verdict_follows_from_the_interval_as_printed() -> None:
    assert Difference(DICE, 0.02, 0.01, 0.03, 9).verdict == "better"
    assert Difference(ECE, 0.02, 0.01, 0.03, 9).verdict == "worse"
    assert Difference(ECE, 0.02, 0.0002, 0.03, 9).verdict == ""
    assert Difference(ECE, 0.02, 0.0002, 0.03, 9).words == "no significant difference"
    assert Difference(ECE, 0.02, -0.01, 0.03, 9).interval == "+0.020 [-0.010, +0.030]"
    neither = Measure("gap", "gap", 3, None, signed=True)
    assert Difference(neither, 0.02, 0.01, 0.03, 9).verdict == ""


def test_without_an_interval_there_is_no_verdict() -> None:
    few = Difference(DICE, 0.02, nan, nan, 3)
    assert (few.verdict, few.words, few.interval) == ("", "too few patients to compare", "+0.020")
