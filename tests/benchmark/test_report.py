"""Tables and pages follow from result files alone, to the last byte."""

import csv
import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from tests.benchmark.committed import FIXTURE, many_patients, with_column

from crac.benchmark import CellResult, report
from crac.benchmark.report import Column, Table, compose, main_table, render, tables
from crac.benchmark.results import MAIN, Group, group_results
from crac.cli import main
from crac.report.measure import Measure

ROOT = Path(__file__).parents[2]
PAPER = yaml.safe_load(Path(report.__file__).with_name("paper.yaml").read_text())


def page(results: list[CellResult], **options: bool) -> str:
    return compose(group_results(results), Path("nowhere"), **options)[0]["benchmark.md"]


def as_on_acdc(results: list[CellResult]) -> list[CellResult]:
    return [replace(r, cell=replace(r.cell, dataset="acdc", backbone="unet")) for r in results]


def test_one_command_gives_the_expected_files_and_twice_the_same(tmp_path: Path) -> None:
    for name in ("one", "two"):
        assert main(["benchmark", "--render", str(FIXTURE / "results"), "--out", str(tmp_path / name), "--paper"]) == 0
    files = {path.relative_to(tmp_path / "one") for path in (tmp_path / "one").rglob("*") if path.is_file()}
    assert len([path for path in files if path.suffix == ".png"]) == 4
    for path in files:
        assert (tmp_path / "one" / path).read_bytes() == (tmp_path / "two" / path).read_bytes(), path
    expected = {path.relative_to(FIXTURE / "expected") for path in (FIXTURE / "expected").rglob("*") if path.is_file()}
    assert expected == {path for path in files if path.suffix != ".png"}
    for path in expected:
        assert (tmp_path / "one" / path).read_text() == (FIXTURE / "expected" / path).read_text(), path
    assert "This paragraph stands beside the results" in (tmp_path / "one/benchmark.md").read_text()


@pytest.mark.parametrize(
    ("name", "folder", "paper"),
    [("methods", "docs", True), ("augmented", "docs/augmented", False), ("tf32", "docs/tf32", False)],
)
def test_committed_results_give_the_committed_page(
    name: str, folder: str, paper: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[str] = []
    monkeypatch.setattr(report, "drawings", lambda group: _undrawn(group, drawn))
    render([ROOT / "results" / name], tmp_path, paper=paper)
    assert (tmp_path / "benchmark.md").read_text() == (ROOT / folder / "benchmark.md").read_text(), (
        "make the page again, docs/benchmarking.md says how"
    )
    assert {f"{one}.png" for one in drawn} <= {p.name for p in (ROOT / folder / "images/benchmark").iterdir()}


def _undrawn(group: Group, drawn: list[str]):  # type: ignore[no-untyped-def]
    """The figures of a group, as empty ones: drawing them takes half a minute."""
    from matplotlib.figure import Figure

    from crac.benchmark.figures import drawings

    for name, what, _ in drawings(group):
        drawn.append(name)
        yield name, what, Figure


def test_entries_are_means_and_deviations_over_seeds(results: list[CellResult]) -> None:
    (group,) = group_results(results)
    column = main_table([group]).columns[0]
    mean, sd = group.over_seeds("dsc").loc["ce"]
    assert column.text("ce") == f"<u>{mean:.3f} ± {sd:.3f}</u>"
    assert column.measure.heading == "Phantom DSC"
    assert list(column.values.index) == group.methods


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


def test_the_papers_values_stand_beside_ours_where_it_has_them(results: list[CellResult]) -> None:
    columns = main_table(group_results(as_on_acdc(results)), paper=True).columns[:4]
    for column, value in zip(columns, ("0.877", "1.72", "0.057", "0.058"), strict=True):
        assert column.text("crac-released").endswith(f" ({value})")
        assert "(" not in column.text("ce-temperature")
    for elsewhere in (main_table(group_results(results), paper=True), main_table(group_results(as_on_acdc(results)))):
        assert not any("(" in column.text(row) for column in elsewhere.columns for row in elsewhere.rows)


def test_a_method_that_is_missing_somewhere_is_shown_and_not_ranked(results: list[CellResult]) -> None:
    other = [
        replace(r, cell=replace(r.cell, dataset="other"), dataset={**r.dataset, "label": "Other"})
        for r in results
        if r.cell.method != "nacl"
    ]
    table = main_table(group_results([*results, *other]))
    lines = {row["method"]: row for row in csv.DictReader(io.StringIO(table.csv()))}
    assert list(lines) == ["CE", "CE + temperature", "NACL", "CRaC (released)"]
    assert [lines["NACL"][f"Other {measure.heading}"] for measure in MAIN] == [""] * 4
    assert all(lines["NACL"][f"Phantom {measure.heading}"] for measure in MAIN)
    assert lines["NACL"]["Friedman rank"] == lines["NACL"]["final rank"] == ""
    assert [lines[name]["final rank"] for name in ("CE", "CE + temperature", "CRaC (released)")] == ["1", "2", "3"]
    assert [column.text("nacl") for column in table.columns if "Other" in column.measure.heading] == ["-"] * 4


def test_measures_of_newer_results_are_shown_where_every_result_has_them(results: list[CellResult]) -> None:
    new = [with_column(with_column(result, "ece[band]"), "of no table") for result in results]

    def other_measures(given: list[CellResult]) -> Table:
        (group,) = group_results(given)
        return next(table for table in tables(group) if table.name == "measures-phantom-nnunet")

    old = other_measures(results)
    headings = [column.measure.heading for column in old.columns]
    assert headings == ["NLL", "BRIER", "ECE, union", "TACE, union", "NLL, union", "BRIER, union"]
    assert old.caption.endswith("and (union) labelled or predicted so")
    shown = other_measures(new)
    assert [column.measure.heading for column in shown.columns] == [*headings, "ECE, band"]
    assert "(band)" in shown.caption
    assert other_measures([*new[:-1], results[-1]]).markdown() == old.markdown()


@pytest.mark.parametrize("backbone", ["unet", "nnunet"])
def test_ranks_of_the_printed_tables_are_reproduced(backbone: str) -> None:
    printed = pd.DataFrame(PAPER["tables"][backbone]).T
    assert printed.shape == (8, 9)
    measures = [m._replace(heading=f"{name} {m.heading}") for name in PAPER["datasets"] for m in MAIN]
    columns = [Column(measure, printed[place]) for place, measure in enumerate(measures)]
    table = Table("x", "x", {method: method.upper() for method in printed.index}, columns).ranked()
    for method, rank in printed[8].items():
        assert table.columns[-2].text(str(method)).strip("*<>/u") == f"{rank:.2f}"
    assert table.columns[-1].text("crac") == "1"
    assert table.columns[-1].text("nacl") == "2"
    assert PAPER["tables"]["unet"]["crac"] == [0.877, 1.72, 0.057, 0.058, 0.876, 5.52, 0.029, 0.033, 1.75]


def test_three_forms_of_one_table() -> None:
    dsc = Column(
        Measure("dsc", "DSC", 3, True),
        pd.Series({"a": 0.9, "b": 0.9004, "c": 0.7}),
        pd.Series([0.01, 0.02, 0.02], list("abc")),
    )
    hd95 = Column(
        Measure("hd95", "HD95", 2), pd.Series({"a": 3.0, "b": 1.0}), pd.Series({"a": 0.5}), pd.Series({"a": 2.5})
    )
    text = Column(Measure("x", "x", 0, None), pd.Series({"a": "50 %", "c": "1 ± 2"}))
    table = Table("x", "An example", {"a": "a_1", "b": "b", "c": "c"}, [dsc, hd95, text]).ranked()
    assert table.markdown().splitlines() == [
        "| method | DSC | HD95 | x | Friedman rank | final rank |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
        "| a_1 | **0.900 ± 0.010** | <u>3.00 ± 0.50</u> (2.50) | 50 % | <u>1.50</u> | 2 |",
        "| b | **0.900 ± 0.020** | **1.00** | - | **1.00** | 1 |",
        "| c | <u>0.700 ± 0.020</u> | - | 1 ± 2 | - | - |",
    ]
    lines = table.latex().splitlines()
    assert lines[:2] == ["% An example", r"\begin{tabular}{lrrrrr}"]
    assert (
        r"a\_1 & \textbf{0.900 $\pm$ 0.010} & \underline{3.00 $\pm$ 0.50} (2.50) & 50 \% & \underline{1.50} & 2 \\"
        in lines
    )
    assert r"c & \underline{0.700 $\pm$ 0.020} & -- & 1 $\pm$ 2 & -- & -- \\" in lines
    rows = list(csv.DictReader(io.StringIO(table.csv())))
    assert rows[0] == {
        "method": "a_1", "DSC": "0.9", "DSC sd": "0.01", "HD95": "3", "HD95 sd": "0.5", "HD95 paper": "2.5",
        "x": "50 %", "Friedman rank": "1.5", "final rank": "2",
    }  # fmt: skip
    assert float(rows[1]["DSC"]) == 0.9004
    assert rows[2]["HD95"] == ""


def test_columns_without_a_better_end_are_neither_marked_nor_ranked() -> None:
    dsc = Column(Measure("dsc", "DSC", 3, True), pd.Series({"a": 1.0, "b": 2.0}))
    gap = Column(Measure("gap", "gap", 3, None, signed=True), pd.Series({"a": 0.1, "b": -0.1}))
    table = Table("x", "x", {"a": "a", "b": "b"}, [dsc, gap]).ranked()
    assert [gap.text(row) for row in "ab"] == ["+0.100", "-0.100"]
    assert [table.columns[-1].text(row) for row in "ab"] == ["2", "1"]


def test_a_column_of_equal_values_marks_none() -> None:
    column = Column(Measure("dsc", "DSC", 3, True), pd.Series({"a": 0.5, "b": 0.5001, "c": np.nan}))
    assert [column.text(row) for row in "abc"] == ["0.500", "0.500", "-"]


def test_few_patients_are_no_ground_for_claims(results: list[CellResult]) -> None:
    few, many = page(results), page([many_patients(result) for result in results])
    readings = [text.partition("## Reading")[2].partition("## Protocol")[0] for text in (few, many)]
    assert "2 patients are too few" in readings[0]
    assert not any(word in readings[0] for word in ("overconfident; the", "worse", "better"))
    assert "methods are overconfident; the smallest gap" in readings[1]
    assert "too few" not in readings[1]
