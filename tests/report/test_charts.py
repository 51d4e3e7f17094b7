"""Charts are well-formed, say what they show and escape every name."""

from math import nan
from xml.etree import ElementTree

import pytest

from crac.report.charts import Curve, Strip, forest, reliability, strips, tag
from crac.report.measure import Measure

BAD = "<script>\"&'</script>"
BINS = {"counts": [0, 10, 1000], "confidence": [None, 0.5, 0.9], "accuracy": [None, 0.25, 0.8]}


def parsed(markup):
    return ElementTree.fromstring(str(markup))


def test_text_and_attributes_are_escaped():
    element = parsed(tag("text", BAD, aria_label=BAD, x=1.25))
    assert element.text == BAD
    assert element.attrib == {"aria-label": BAD, "x": "1.2"}


def test_a_reliability_diagram_has_a_mark_for_each_bin_with_voxels():
    drawn = parsed(reliability([Curve(BAD, BINS, 1)], f"about {BAD}"))
    assert drawn.attrib["aria-label"] == f"about {BAD}"
    marks = [part for part in drawn.iter("path") if "mark" in part.attrib["class"]]
    assert [part.find("title").text for part in marks] == [
        f"{BAD}: confidence 0.500, accuracy 0.250, 10 voxels",
        f"{BAD}: confidence 0.900, accuracy 0.800, 1,000 voxels",
    ]
    assert [("hollow" in part.attrib["class"]) for part in marks] == [True, False]
    line = next(part for part in drawn.iter("path") if "line" in part.attrib["class"].split())
    assert line.attrib["d"] == "M172.0 203.0L276.0 60.0"  # a square of 260 whose corner is at 42, 8
    shares = [part.find("title").text for part in drawn.iter("rect") if "bar" in part.attrib["class"]]
    assert shares == [f"{BAD}: 0.99% of the voxels (10)", f"{BAD}: 99.01% of the voxels (1,000)"]


def test_strips_place_patients_by_value_and_show_an_interval_only_where_there_is_one():
    rows = [
        Strip("all", {"a": 0.5, BAD: 1.0, "none": nan}, (0.75, 0.6, 0.9)),
        Strip("few", {"a": 0.75}, (0.75, nan, nan)),
        Strip("empty", {"a": nan}, (nan, nan, nan)),
    ]
    drawn = parsed(strips(rows, Measure("dsc", "Dice", 3, True), "about"))
    lines = [part for part in drawn if part.attrib["class"] == "strip"]
    dots = [[dot.find("title").text for dot in line.iter("circle")] for line in lines]
    assert dots == [["a: 0.500", f"{BAD}: 1.000"], ["a: 0.750"], [], []]
    places = [float(dot.attrib["cx"].rstrip("%")) for dot in drawn.iter("circle")]
    assert places[2] == pytest.approx((places[0] + places[1]) / 2, abs=0.01)
    values = [line.findall("span")[1].text for line in lines[:3]]
    assert values == ["0.750 [0.600, 0.900]", "0.750", "-"]
    spans = [len([one for one in line.iter("line") if one.attrib["class"] == "span"]) for line in lines]
    assert spans == [1, 0, 0, 0]


@pytest.mark.parametrize("higher", [None, True, False])
@pytest.mark.parametrize(
    "values", [[0.0], [1.0], [5.0, 5.0], [-0.1, 0.2], [1e-9, 3e6], [], [0.0003, 0.0005], [0.9991, 1.0]]
)
def test_every_axis_has_round_numbers_within_its_ends(values, higher):
    row = Strip("x", dict(enumerate(map(float, values))), (nan, nan, nan))
    drawn = parsed(strips([row], Measure("gap", "gap", 3, higher, signed=higher is None), "about"))
    ticks = {text.text: float(text.attrib["x"].rstrip("%")) for text in drawn.iter("text")}
    assert 1 <= len(ticks) == len(list(drawn.iter("text"))) <= 7
    assert all(0 <= tick <= 100 for tick in ticks.values())
    if higher and values and max(values) <= 1:
        assert max(map(float, ticks)) <= 1


def test_a_forest_line_is_centred_on_0():
    drawn = parsed(forest(-0.1, 0.3, 0.1, 0.3, "words"))
    span = next(one for one in drawn.iter("line") if one.attrib["class"] == "span")
    assert (span.attrib["x1"], span.attrib["x2"]) == ("34.67%", "96.00%")
    assert parsed(forest(nan, nan, 0.1, 0.3, "words")).find("circle").attrib["cx"] == "65.33%"
