"""The tables follow from the results."""

import csv
import io
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import yaml
from tests.benchmark.committed import as_on_acdc, many_patients, on_splits, with_column

from crac.benchmark import CellResult
from crac.benchmark import tables as module
from crac.benchmark.results import MAIN, group_results
from crac.benchmark.tables import main_table, objective_tables, tables
from crac.report.comparison import Column, Table

PAPER = yaml.safe_load(Path(module.__file__).with_name("paper.yaml").read_text())


def test_entries_are_means_and_deviations_over_seeds(results: list[CellResult]) -> None:
    (group,) = group_results(results)
    column = main_table([group]).columns[0]
    mean, sd = group.over_seeds("dsc").loc["ce"]
    assert column.text("ce") == f"<u>{mean:.3f} ± {sd:.3f}</u>"
    assert column.measure.heading == "Phantom DSC"
    assert list(column.values.index) == group.methods


def test_the_papers_values_stand_beside_ours_where_it_has_them(results: list[CellResult]) -> None:
    columns = main_table(group_results(as_on_acdc(results)), paper=True).columns[:4]
    for column, value in zip(columns, ("0.877", "1.72", "0.057", "0.058"), strict=True):
        assert column.text("crac-released").endswith(f" ({value})")
        assert "(" not in column.text("ce-temperature")
    ours = [
        replace(r, settings={**r.settings, "method_options": {"preset": "signed"}})
        if r.cell.method == "crac-released"
        else r
        for r in as_on_acdc(results)
    ]
    for column in main_table(group_results(ours), paper=True).columns[:4]:
        assert "(" not in column.text("crac-released"), "the preset signed is not the paper's"
        assert "(" in column.text("nacl")
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


def test_objectives_are_compared_by_the_same_trainings(results: list[CellResult]) -> None:
    first = many_patients(results[0])
    plain = on_splits(first, {"ce": [(0, 0, 0.5), (0, 1, 0.7)], "fl": [(0, 0, 0.6)], "ls": [(0, 0, 0.6)]}, "CE")
    other = on_splits(first, {"ce": [(0, 0, 0.75)], "fl": [(0, 0, 0.5)]}, "Dice-CE")
    (table,) = objective_tables(group_results([*plain, *other]))
    assert list(table.rows) == ["ce", "fl"]  # ls has one objective only
    assert table.columns[0].text("ce") == "+0.250 [+0.250, +0.250] better"
    assert table.columns[0].text("fl") == "-0.100 [-0.100, -0.100] worse"
    assert table.caption.startswith("Phantom, nnunet: Dice-CE minus CE, networks as trained, with the 95 % interval")
    few = on_splits(results[0], {"ce": [(0, 0, 0.5)]}, "CE") + on_splits(results[0], {"ce": [(0, 0, 0.6)]}, "Dice-CE")
    (table,) = objective_tables(group_results(few))
    assert table.columns[0].text("ce") == "+0.100"
    assert "too few" in table.caption
    assert list(objective_tables(group_results(plain))) == []
    nameless = on_splits(with_column(results[0], "nll[band]"), {"ce": [(0, 0, 0.5)]})
    assert list(objective_tables(group_results([*nameless, *plain]))) == []  # of another suite, without objectives


def test_ours_is_compared_with_the_loss_that_it_was_added_to(results: list[CellResult]) -> None:
    rows = {"ce": {}, "ce-dice": {"dice_weight": 1}, "ours": {"preset": "signed"}}
    rows["ours-dice"] = {"preset": "signed", "dice_weight": 1}
    rows["ours-weighted"] = {"preset": "signed", "class_weights": [1, 2, 1, 1, 1]}
    dsc = {"ce": 0.5, "ce-dice": 0.6, "ours": 0.7, "ours-dice": 0.9, "ours-weighted": 0.9}
    found = on_splits(many_patients(results[0]), {name: [(0, 0, dsc[name])] for name in rows})
    (group,) = group_results(
        [
            replace(r, settings={**r.settings, "method": loss, "method_options": rows[r.cell.method]})
            for r in found
            for loss in ["crac" if r.cell.method.startswith("ours") else "ce"]
        ]
    )
    (table,) = (table for table in tables(group) if table.name.startswith("harm-"))
    assert {row: table.columns[0].text(row) for row in table.rows} == {
        "ours": "+0.200 [+0.200, +0.200] better",
        "ours-dice": "+0.300 [+0.300, +0.300] better",
    }


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
