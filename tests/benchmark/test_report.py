"""Tables and pages follow from result files alone, to the last byte."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from tests.benchmark.committed import FIXTURE, as_on_acdc, many_patients
from tests.report.test_page import Reader

from crac.benchmark import CellResult, report
from crac.benchmark.report import Content, compose, render
from crac.benchmark.results import group_results
from crac.cli import main

ROOT = Path(__file__).parents[2]
NAUGHTY = "<script>alert(1)</script>\"&'"


def page(results: list[CellResult], **options: bool) -> str:
    return compose(group_results(results), **options).markdown()


def test_one_command_gives_the_expected_files_and_twice_the_same(tmp_path: Path) -> None:
    for name in ("one", "two"):
        assert main(["benchmark", "--render", str(FIXTURE / "results"), "--out", str(tmp_path / name), "--paper"]) == 0
    files = {path.relative_to(tmp_path / "one") for path in (tmp_path / "one").rglob("*") if path.is_file()}
    assert len([path for path in files if path.suffix == ".svg"]) == 4
    for path in files:
        assert (tmp_path / "one" / path).read_bytes() == (tmp_path / "two" / path).read_bytes(), path
    expected = {path.relative_to(FIXTURE / "expected") for path in (FIXTURE / "expected").rglob("*") if path.is_file()}
    assert expected == {path for path in files if path.suffix not in (".svg", ".html")}
    for path in expected:
        assert (tmp_path / "one" / path).read_text() == (FIXTURE / "expected" / path).read_text(), path
    assert "This paragraph stands beside the results" in (tmp_path / "one/benchmark.md").read_text()


@pytest.mark.parametrize(
    ("name", "folder", "paper"),
    [
        ("methods", "docs", True),
        ("practical", "docs/practical", False),
        ("signed", "docs/signed", False),
        ("augmented", "docs/augmented", False),
        ("tf32", "docs/tf32", False),
    ],
)
def test_committed_results_give_the_committed_page(
    name: str, folder: str, paper: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report, "_drawn", lambda _: "")  # drawing takes half a minute
    render([ROOT / "results" / name], tmp_path, paper=paper)
    assert (tmp_path / "benchmark.md").read_text() == (ROOT / folder / "benchmark.md").read_text(), (
        "make the page again, docs/benchmarking.md says how"
    )
    made, kept = ({path.name for path in (at / "images/benchmark").iterdir()} for at in (tmp_path, ROOT / folder))
    assert made == kept


def test_the_small_print_names_every_preparation_of_the_data(results: list[CellResult]) -> None:
    other = replace(results[0], dataset={**results[0].dataset, "manifest_sha256": "another"})
    content = compose(group_results([other, *results[1:]]))
    text = content.html(dict.fromkeys(content.drawn, "<svg/>"))
    (named,) = re.findall("<dt>data, Phantom</dt><dd>(.+?)</dd>", text)
    assert set(named.split(", ")) == {"another", results[1].dataset["manifest_sha256"]}


def test_the_heading_of_a_page_is_the_one_written_beside_its_results(results: list[CellResult]) -> None:
    groups = group_results(results)
    own, other = compose(groups, summary="# Ours\n\n## In short\n\nGood.\n# stays"), compose(groups)
    assert own.markdown().startswith("# Ours\n\n## In short\n\nGood.\n# stays\n\n## How it was measured")
    assert own.markdown().count("# Ours") == 1
    assert "<h1>Ours</h1>" in own.html(dict.fromkeys(own.drawn, "<svg/>"))
    assert other.markdown().startswith("# How the methods compare\n")


def test_the_page_says_how_far_the_paper_is_and_whether_ours_leads_as_there(results: list[CellResult]) -> None:
    moved = as_on_acdc(results)
    means = group_results(moved)[0].over_seeds("dsc")["mean"]
    its, mine = means["nacl"], means["crac-released"]
    low, high = sorted([its - 0.854, mine - 0.877])
    text = page(moved, paper=True)
    assert f"over the 2 methods both have: DSC by {low:+.3f} to {high:+.3f}, HD95 by" in text
    assert f"CRaC (released) minus NACL: DSC {mine - its:+.3f} (+0.023 in the paper)" in text
    assert "What differs from the paper" not in page(moved)
    assert "What differs from the paper" not in page(results, paper=True)  # the paper has no phantoms


def test_the_page_has_every_setting_also_where_data_sets_differ_in_it(results: list[CellResult]) -> None:
    other = [
        replace(
            r,
            cell=replace(r.cell, dataset="other"),
            dataset={**r.dataset, "label": "Other"},
            settings={**r.settings, "batch_size": 64},
        )
        for r in results
    ]
    text = page([*results, *other])
    assert "| batch_size | Other, nnunet: 64; Phantom, nnunet: 4 |" in text
    assert f"| epochs | {results[0].settings['epochs']} |" in text
    assert "| method " not in text.partition("## Protocol")[2]


def test_the_page_says_what_was_run_and_how_patients_were_divided(results: list[CellResult]) -> None:
    by_file = [replace(r, suite="mine", settings={**r.settings, "split": "mine.json"}) for r in results]
    for given, suite, sentence in (
        (results, "phantom_smoke", "divided 70/10/20 into training, validation and test, by seed 0"),
        (by_file, "mine", "divided into training, validation and test by the split file below"),
    ):
        text = page(given)
        assert f"`crac benchmark {suite}`." in text
        assert sentence in text
        assert f"| split | {given[0].settings['split']} |" in text


def test_the_page_says_what_calibrators_were_fitted_on(results: list[CellResult]) -> None:
    (plain, cool) = ([r for r in results if r.cell.method == name] for name in ("ce", "ce-temperature"))
    assert "is fitted" not in page(plain)
    for calibrator, mask, sentence in (
        (
            "temperature",
            "all",
            "averaged. Temperature is fitted on the validation set's likelihood, over\nall voxels. S",
        ),
        (
            "class",
            "all",
            "averaged. Calibrators are fitted on the validation set's likelihood, over every voxel, every",
        ),
        (
            "vector",
            "label_foreground",
            "is not background, every volume weighing the same; they change no label, but for",
        ),
    ):
        fitted = [replace(r, cell=replace(r.cell, calibrator=calibrator, fitted_on=mask)) for r in cool]
        text = page([*plain, *fitted])
        assert sentence in text
        assert text.count("fitted on the validation") == 1


def test_few_patients_are_no_ground_for_claims(results: list[CellResult]) -> None:
    few, many = page(results), page([many_patients(result) for result in results])
    readings = [text.partition("## Reading")[2].partition("## Protocol")[0] for text in (few, many)]
    assert "2 patients are too few" in readings[0]
    assert not any(word in readings[0] for word in ("overconfident; the", "worse", "better"))
    assert "methods are overconfident; the smallest gap" in readings[1]
    assert "too few" not in readings[1]


def read(content: Content) -> tuple[str, Reader]:
    text = content.html(dict.fromkeys(content.drawn, "<svg/>"))
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
    assert not (tmp_path / "images/benchmark/maps-phantom-nnunet.svg").exists()
