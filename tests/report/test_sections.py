"""Sections of a page."""

from tests.report.test_page import page_of

from crac.report.page import Block, Step
from crac.report.result import Result


def test_sections_without_content_are_left_out(folders):
    result = Result.read(folders(), "x")
    _, page = page_of(result)
    assert not {"calibration", "differences", "story"} & page.ids
    gain = {"nll[band]": {"before": 0.5, "after": 0.4, "difference": [-0.1, -0.15, -0.05]}}
    told = Result("x", {**result.summary, "calibration": {"method": "class_region", "gain": gain}}, result.rows)
    story = [Step("First", "We began.", "crac demo --out <DIR>")]
    _, page = page_of(told, story=story, blocks=[Block("more", "And <more>", ["safe"])])
    assert {"calibration", "story", "more"} <= page.ids
    assert "-0.1000 [-0.1500, -0.0500]" in page.text
    assert "crac demo --out <DIR>" in page.text
    assert "And <more>" in page.text
