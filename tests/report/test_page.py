"""The page says what was measured, to the printed digit, and nothing more."""

import json
import re
from html.parser import HTMLParser

import pytest
from tests.report.evaluations import CLASSES, NAUGHTY, evaluation

from crac.report.measure import Measure
from crac.report.page import render, verdict
from crac.report.result import Result, difference


class Reader(HTMLParser):
    """The text of a page, its tags, and the text of elements with ``data-column``."""

    def __init__(self, page):
        super().__init__()
        self.text, self.tags, self.cells, self.stack, self.ids = "", [], {}, [], set()
        self.scripts = []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.tags.append((tag, attrs))
        if "id" in attrs:
            self.ids.add(attrs["id"])
        if tag not in ("meta", "br", "input", "link", "img"):
            self.stack.append((tag, attrs))

    def handle_endtag(self, tag):
        while self.stack and self.stack.pop()[0] != tag:
            pass

    def handle_data(self, data):
        if self.stack and self.stack[-1][0] in ("script", "style"):
            self.scripts.append(data)
            return
        self.text += data
        if self.stack and "data-column" in self.stack[-1][1]:
            tables = [attrs for tag, attrs in self.stack if tag == "table"]
            place = tables[-1]["class"].split()[0] if tables else "numbers"
            own = self.stack[-1][1].get("data-result") or (tables[-1].get("data-result") if tables else "0")
            self.cells[place, own, self.stack[-1][1]["data-column"]] = data


def page_of(*results, **options):
    text = render(results, **options)
    return text, Reader(text)


def test_numbers_equal_the_summary_to_the_printed_digits(folders):
    result = Result.read(folders(), "x")
    _, page = page_of(result)
    summary = json.loads((folders() / "summary.json").read_text())
    over = summary["over_patients"]
    assert page.cells["numbers", "0", "ece[band]"] == f"{over['ece[band]']['mean']:.3f}"
    assert page.cells["numbers", "0", "gap[band]"] == f"{over['gap[band]']['mean']:+.3f}"
    assert page.cells["numbers", "0", "dsc"] == f"{over['dsc']['mean']:.3f}"
    for key in ("ece[band]", "gap[band]", "dsc"):
        sign = "+" if key.startswith("gap") else ""
        assert f"95 % interval {over[key]['low']:{sign}.3f} to {over[key]['high']:{sign}.3f}" in page.text
    everything = {key: text for (place, _, key), text in page.cells.items() if place == "everything"}
    assert set(over) <= set(everything)
    for key, own in over.items():
        if own["mean"] is not None:
            printed = [float(number) for number in re.findall(r"[+-]?\d+\.\d+", everything[key])]
            assert printed == pytest.approx([own["mean"], own["low"], own["high"]], abs=0.50001e-4)
    pooled = summary["pooled"]["band"]
    assert f"ECE {pooled['ece']:.3f}, gap {pooled['gap']:+.3f}, {pooled['count']:,} voxels." in page.text
    for own in pooled["by_class"].values():
        assert f"ECE {own['ece']:.3f}; {own['labelled']:,} voxels labelled so." in page.text
    for region in pooled["by_region"].values():
        for own in region["by_class"].values():
            assert f"{own['predicted_gap']:+.3f}{own['predicted']:,} voxels" in page.text


def test_names_stay_text_everywhere(folders):
    text, page = page_of(Result.read(folders(), NAUGHTY), Result.read(folders(8, 2.0), CLASSES[1]))
    assert "<script>alert" not in text
    assert [tag for tag, _ in page.tags].count("script") == 2
    assert "b" not in [tag for tag, attrs in page.tags if tag == "b" and attrs]
    assert "7 * 7" in page.text
    assert "49" not in re.findall(r"\{\{ (\d+) \}\}", text)
    for name in (*CLASSES, NAUGHTY):
        assert name in page.text
    data = json.loads(page.scripts[1])
    assert len(data["views"]) == 4
    titles = re.findall(r"<title>(.*?)</title>", text)
    assert not any("<" in title for title in titles)


def test_the_page_loads_nothing_and_is_small(folders):
    text, page = page_of(Result.read(folders()))
    assert "http:" not in text
    assert "https:" not in text
    assert not [attrs for tag, attrs in page.tags if tag in ("link", "iframe", "object")]
    assert all(
        value.startswith(("data:", "#"))
        for _, attrs in page.tags
        for key, value in attrs.items()
        if key in ("src", "href")
    )
    assert len(text) < 10_000_000
    for anchor in re.findall(r'href="#([^"]+)"', text):
        assert anchor in page.ids


def test_two_patients_have_no_interval_and_the_page_says_why(folders):
    _, page = page_of(Result.read(folders(2), "x"))
    assert "95 % interval" not in page.text.partition("Small print")[0].replace("per patient, 95 % interval", "")
    assert (
        "No interval is given: 2 patients are too few for an interval or a comparison (at least 6 are needed)."
        in page.text
    )
    assert "[0." not in page.text
    assert not re.search(r"\b(over|under)confident\b", page.text)
    _, page = page_of(Result.read(folders(2), "x"), Result.read(folders(2, 2.0), "y"))
    assert "too few patients to compare" in page.text
    claims = {attrs.get("class") for tag, attrs in page.tags if tag == "span"}
    assert not claims & {"better", "worse"}
    assert not re.search(r"\b(over|under)confident\b", page.text)


def test_patients_without_a_value_are_none_of_those_an_interval_needs():
    found = evaluation(8, look=False)
    for row in found.rows[:4]:
        row["dsc"] = float("nan")
    _, page = page_of(Result.of(found, "x"))
    assert "No interval is given of Dice: 4 patients are too few" in page.text
    for row in found.rows[:4]:
        row["ece[band]"] = row["gap[band]"] = float("nan")
    _, page = page_of(Result.of(found, "x"))
    assert "No interval is given: 4 patients are too few" in page.text
    assert "8 patients are too few" not in page.text


def test_several_results_are_compared_with_the_first(folders):
    sharp, soft = Result.read(folders(), "sharp"), Result.read(folders(8, 2.0), "soft")
    _, page = page_of(sharp, soft)
    assert "soft minus sharp" in page.text
    assert "8 patients in common." in page.text
    assert page.cells["wide", None, "dsc"] == "0.000 [0.000, 0.000]"  # sharpness does not change what is predicted
    assert {attrs.get("class") for tag, attrs in page.tags if tag == "span"} & {"better", "worse"}


def test_the_verdict_on_three_results_compares_each_with_the_first(folders):
    results = [Result.read(folders(8, value), name) for value, name in ((6.0, "sharp"), (2.0, "soft"), (6.0, "again"))]
    ece, dice = verdict(results)
    means = [f"{result.over_patients('ece[band]')[0]:.3f} for “{result.label}”" for result in results]
    said = difference(results[1], results[0], Measure("ece[band]", "ECE")).words
    assert said in ("better", "worse")
    assert ece == (
        f"The calibration error (ECE) is {means[0]}; against it {means[1]} ({said}) and {means[2]} "
        "(no significant difference)."
    )
    assert dice.count("no significant difference") == 2


def test_without_names_nothing_tells_who_it_is(folders):
    text, page = page_of(Result.read(folders(), "x"), anonymous=True)
    for name in (NAUGHTY, "patient_0", "secret", "data:image"):
        assert name not in page.text
        assert name not in text
    assert "cases" not in page.ids
    assert {"reliability", "gaps", "segmentation", "patients", "print"} <= page.ids


def test_a_volume_without_values_shows_dashes():
    found = evaluation(2, look=False)
    for row in found.rows:
        row["hd95"] = row["hd95.<script>alert(1)</script>"] = float("nan")
    _, page = page_of(Result.of(found, "x"))
    assert "nan" not in page.text.lower()
