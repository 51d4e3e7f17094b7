"""The page of a benchmark: the same numbers as its tables, names that stay text, claims from six patients on."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from tests.benchmark.committed import FIXTURE, many_patients
from tests.report.test_page import Reader

from crac.benchmark import CellResult, reading, report
from crac.benchmark.page import page
from crac.benchmark.report import Content, compose, render
from crac.benchmark.results import group_results

NAUGHTY = "<script>alert(1)</script>\"&'"


def read(content: Content) -> tuple[str, Reader]:
    text = page(content, dict.fromkeys(content.drawn, "<svg/>"))
    return text, Reader(text)


def plain(markdown: str) -> str:
    """An entry of a Markdown table without its marks."""
    return re.sub(r"\*\*|</?u>", "", markdown).strip()


def test_tables_are_those_of_the_repository_page(results: list[CellResult]) -> None:
    content = compose(group_results(results), notes="### By hand\n\nA sentence, **so**.")
    text, shown = read(content)
    rows = [re.findall(r"<t[hd] [^>]*>(.*?)</t[hd]>", line) for line in text.split("<tr>")[1:] if "<td data" in line]
    entries = [[plain(re.sub("</?b>", "", entry)) for entry in row] for row in rows]
    printed = [
        [plain(entry) for entry in line.strip("| ").split(" | ")]
        for table in [*content.main, *(table for section in content.sections for table in section.tables)]
        for line in table.markdown().splitlines()[2:]
    ]
    assert len(printed) > 20
    assert [[entry.replace("&#43;", "+") for entry in row] for row in entries] == printed
    assert "A sentence, so." in shown.text


def test_it_holds_all_it_shows(tmp_path: Path) -> None:
    render([FIXTURE / "results"], tmp_path)
    text = (tmp_path / "benchmark.html").read_text(encoding="utf-8")
    shown = Reader(text)
    pictures = [attrs for tag, attrs in shown.tags if tag == "img"]
    assert len(pictures) == 4
    assert all(attrs["src"].startswith("data:image/svg+xml;base64,") and attrs["alt"] for attrs in pictures)
    links = [attrs["href"] for tag, attrs in shown.tags if "href" in attrs]
    assert links
    assert all(link.startswith("#") and link[1:] in shown.ids for link in links)
    assert len(text) < 10_000_000


def test_names_stay_text(results: list[CellResult]) -> None:
    named = [replace(r, cell=replace(r.cell, label=f"{NAUGHTY} {r.cell.label}")) for r in results]
    text, shown = read(compose(group_results(named), notes=f"# Notes\n\n{NAUGHTY} and [a link](elsewhere.md)"))
    assert [tag for tag, _ in shown.tags].count("script") == 2
    assert f"{NAUGHTY} CE" in shown.text
    assert "elsewhere.md" not in text
    assert "a link" in shown.text


def test_claims_need_six_patients(results: list[CellResult]) -> None:
    few, many = (
        read(compose(group_results(own)))[1].text.partition("Every method in numbers")[0]
        for own in (results, [many_patients(result) for result in results])
    )
    assert "of 2 patients, too few to compare" in few
    assert "No interval is given of Phantom, nnunet: 2 patients are too few" in few
    assert not re.search("significantly|95 %", few)
    assert re.search(r"significantly higher than (all 3|none of the 3|[12] of the 3) others", many)
    assert many.count("95 % interval") == 3


def test_the_leader_is_the_best(results: list[CellResult]) -> None:
    groups = group_results([many_patients(result) for result in results])
    means = {method: groups[0].by_patient("dsc", [method])[method].mean() for method in groups[0].methods}
    best = max(means, key=means.__getitem__)
    _, shown = read(compose(groups))
    top = shown.text.partition("Every method in numbers")[0]
    assert f"The highest Dice is that of {groups[0].labels[best]} on Phantom, nnunet, {means[best]:.3f}" in top


def test_methods_that_print_the_same_lead_together(results: list[CellResult]) -> None:
    plain = [result for result in results if result.cell.method == "ce"]
    nacl = [result for result in results if result.cell.method == "nacl"]
    same = [replace(other, volumes=own.volumes) for own, other in zip(plain, nacl, strict=True)]
    assert reading.verdict(group_results([*plain, *same]))[1].startswith(
        "The highest Dice is that of CE and NACL on Phantom"
    )


def test_without_names_no_segmentation_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also not one that an earlier report left."""
    monkeypatch.setattr(report, "_drawn", lambda _: "<svg/>")
    (tmp_path / "images/benchmark").mkdir(parents=True)
    (tmp_path / "images/benchmark/maps-phantom-nnunet.svg").write_text("<svg>a patient</svg>")
    render([FIXTURE / "results"], tmp_path)
    assert "maps-phantom" in (tmp_path / "benchmark.md").read_text()
    assert (tmp_path / "benchmark.html").read_text().count("<img") == 5
    render([FIXTURE / "results"], tmp_path, anonymous=True)
    assert "maps-phantom" not in (tmp_path / "benchmark.md").read_text()
    assert (tmp_path / "benchmark.html").read_text().count("<img") == 4
