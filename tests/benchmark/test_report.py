"""Tables and pages follow from result files alone, to the last byte."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.benchmark.committed import FIXTURE, as_on_acdc, many_patients

from crac.benchmark import CellResult, report
from crac.benchmark.report import compose, render
from crac.benchmark.results import group_results
from crac.cli import main

ROOT = Path(__file__).parents[2]


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


def test_few_patients_are_no_ground_for_claims(results: list[CellResult]) -> None:
    few, many = page(results), page([many_patients(result) for result in results])
    readings = [text.partition("## Reading")[2].partition("## Protocol")[0] for text in (few, many)]
    assert "2 patients are too few" in readings[0]
    assert not any(word in readings[0] for word in ("overconfident; the", "worse", "better"))
    assert "methods are overconfident; the smallest gap" in readings[1]
    assert "too few" not in readings[1]
