"""Tables and pages follow from result files alone, to the last byte."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from crac.benchmark import load_results
from crac.benchmark.content import main_table
from crac.benchmark.page import write_page
from crac.benchmark.reading import differs_from_paper
from crac.benchmark.render import compose
from crac.benchmark.result import CellResult
from crac.benchmark.scores import MAIN, group_results
from crac.benchmark.significance import Difference, difference
from crac.benchmark.tables import Number
from crac.cli import main
from crac.errors import InputError

ROOT = Path(__file__).parents[2]
FIXTURE = Path(__file__).parent / "fixture"
COMMITTED = {
    "fixture": (FIXTURE / "results", FIXTURE / "expected", True),
    "docs": (ROOT / "results/methods", ROOT / "docs", True),
    "augmented": (ROOT / "results/augmented", ROOT / "docs/augmented", False),
}


@pytest.fixture
def results() -> list[CellResult]:
    return load_results([FIXTURE / "results"])


@pytest.mark.parametrize("name", list(COMMITTED))
def test_committed_results_give_the_committed_tables_and_page(name: str) -> None:
    results, expected, paper = COMMITTED[name]
    texts = compose([results], expected, paper=paper).texts
    tables = {f"tables/{path.name}" for path in (expected / "tables").iterdir()}
    assert tables == {path for path in texts if path.startswith("tables/")}
    for path, text in texts.items():
        assert (expected / path).read_bytes() == text.encode(), f"{path}: run crac benchmark --render again"


def test_one_command_writes_all_and_twice_the_same(tmp_path: Path) -> None:
    for name in ("one", "two"):
        assert main(["benchmark", "--render", str(FIXTURE / "results"), "--out", str(tmp_path / name), "--paper"]) == 0
    files = {path.relative_to(tmp_path / "one") for path in (tmp_path / "one").rglob("*") if path.is_file()}
    assert len([path for path in files if path.suffix == ".png"]) >= 6
    for path in files:
        assert (tmp_path / "one" / path).read_bytes() == (tmp_path / "two" / path).read_bytes(), path
    page = (tmp_path / "one/benchmark.md").read_text()
    assert "This paragraph stands beside the results" in page
    assert page == (FIXTURE / "expected/benchmark.md").read_text()


def test_entries_are_means_and_deviations_over_seeds(results: list[CellResult]) -> None:
    (group,) = group_results(results)
    assert [row.method for row in group.rows] == ["ce", "ce-temperature", "nacl", "crac-released"]
    sweep = group.sweeps["nacl"]
    assert sweep.option == "alpha"
    assert list(sweep.rows) == [0.05, 0.5]
    per_seed = [np.mean([r.volumes[v][r.columns.index("dsc")] for v in r.volumes]) for r in group.rows[0].results]
    entry = main_table([group]).rows[0][1]
    assert isinstance(entry, Number)
    assert entry.value == pytest.approx(np.mean(per_seed))
    assert entry.sd == pytest.approx(np.std(per_seed, ddof=1))


def test_a_row_of_the_tables_is_a_point_of_the_sweep(results: list[CellResult]) -> None:
    named = [
        replace(r, settings={**r.settings, "method_options": {"alpha": 0.1}}) if r.cell.method == "nacl" else r
        for r in results
    ]
    (group,) = group_results(named)
    sweep = group.sweeps["nacl"]
    assert sweep.rows[0.1].method == "nacl"
    assert [sweep.label(value) for value in sweep.rows] == ["NACL alpha 0.05", "NACL alpha 0.1", "NACL alpha 0.5"]
    assert "nacl" in [row.method for row in group.rows]
    assert len(group.all_rows()) == len(group.rows) + 2


def test_the_page_says_how_far_the_paper_is_and_whether_ours_leads_as_there(results: list[CellResult]) -> None:
    moved = group_results([replace(r, cell=replace(r.cell, dataset="acdc", backbone="unet")) for r in results])
    span, lead = differs_from_paper(moved)
    nacl, ours = (moved[0].row(name) for name in ("nacl", "crac-released"))
    assert nacl is not None
    assert ours is not None
    its, mine = (float(np.mean([result.mean("dsc") for result in row.results])) for row in (nacl, ours))
    low, high = sorted([its - 0.854, mine - 0.877])
    assert f"over the 2 methods both have: DSC by {low:+.3f} to {high:+.3f}, HD95 by" in span
    assert f"CRaC (released) minus NACL: DSC {mine - its:+.3f} (+0.023 in the paper)" in lead
    assert list(differs_from_paper(group_results(results))) == []  # the paper has no phantoms


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
    groups = group_results([*results, *other])
    page = write_page(groups, [], {}, {group.name: [] for group in groups})
    assert "| batch_size | Other, nnunet: 64; Phantom, nnunet: 4 |" in page
    assert f"| epochs | {results[0].settings['epochs']} |" in page
    assert "| method " not in page.partition("## Protocol")[2]


def test_the_page_says_what_was_run_and_how_patients_were_divided(results: list[CellResult]) -> None:
    by_file = [replace(r, suite="mine", settings={**r.settings, "split": "mine.json"}) for r in results]
    for given, suite, sentence in (
        (results, "phantom_smoke", "divided 70/10/20 into training, validation and test, by seed 0"),
        (by_file, "mine", "divided into training, validation and test by the split file below"),
    ):
        groups = group_results(given)
        page = write_page(groups, [], {}, {group.name: [] for group in groups})
        assert f"`crac benchmark {suite}`." in page
        assert sentence in page
        assert f"| split | {given[0].settings['split']} |" in page


def test_the_papers_values_stand_beside_ours_where_it_has_them(results: list[CellResult]) -> None:
    moved = [replace(r, cell=replace(r.cell, dataset="acdc", backbone="unet")) for r in results]
    rows = {row[0]: row for row in main_table(group_results(moved), paper=True).rows}
    assert [entry.paper for entry in rows["CRaC (released)"][1:5] if isinstance(entry, Number)] == [
        *(0.877, 1.72, 0.057, 0.058),
    ]
    assert [entry.paper for entry in rows["CE + temperature"][1:5] if isinstance(entry, Number)] == [None] * 4
    elsewhere = main_table(group_results(results), paper=True)
    assert not any(isinstance(e, Number) and e.paper is not None for row in elsewhere.rows for e in row)


def test_a_method_that_is_missing_somewhere_is_shown_and_not_ranked(results: list[CellResult]) -> None:
    other = [replace(r, cell=replace(r.cell, dataset="other")) for r in results if r.cell.method != "nacl"]
    table = main_table(group_results([*results, *other]))
    rows = {row[0]: row for row in table.rows}
    assert list(rows) == ["CE", "CE + temperature", "NACL", "CRaC (released)"]
    assert rows["NACL"][1:5] == [None] * 4 or rows["NACL"][5:9] == [None] * 4
    assert rows["NACL"][-1] is None
    assert {row[-1] for row in table.rows} == {None, *(r[-1] for n, r in rows.items() if n != "NACL")}


def test_patients_not_volumes_are_drawn(results: list[CellResult]) -> None:
    (group,) = group_results(results)
    ours, rival = group.rows[-1], group.rows[0]
    whole = difference(ours, rival, MAIN[0])
    assert whole is not None
    expected = np.mean([r.mean("dsc") for r in ours.results]) - np.mean([r.mean("dsc") for r in rival.results])
    assert whole.estimate == pytest.approx(expected)
    same = replace(ours, results=[replace(r, patients=dict.fromkeys(r.patients, "one")) for r in ours.results])
    found = difference(
        same, replace(rival, results=[replace(r, patients=same.results[0].patients) for r in rival.results]), MAIN[0]
    )
    assert found is not None
    assert found.low == found.high == pytest.approx(expected)  # a single patient leaves nothing to draw
    assert Difference(MAIN[0], 0.02, 0.01, 0.03).verdict == "better"
    assert Difference(MAIN[2], 0.02, 0.01, 0.03).verdict == "worse"
    assert Difference(MAIN[2], 0.02, 0.0002, 0.03).verdict == ""


def test_damaged_and_doubled_results_are_refused(tmp_path: Path) -> None:
    source = next((FIXTURE / "results").glob("*.json"))
    (tmp_path / "a.json").write_bytes(source.read_bytes())
    assert len(load_results([tmp_path])) == 1
    (tmp_path / "b.json").write_bytes(source.read_bytes())
    with pytest.raises(InputError, match=r"b\.json holds the same cell as .*a\.json"):
        load_results([tmp_path])
    (tmp_path / "b.json").write_bytes(source.read_bytes()[:1000])
    with pytest.raises(InputError, match=r"b\.json is not the result of a benchmark"):
        load_results([tmp_path])
    (tmp_path / "b.json").write_text('{"format": 99}')
    with pytest.raises(InputError, match=r"b\.json has result format 99"):
        load_results([tmp_path])


def test_saving_and_loading_change_nothing(results: list[CellResult], tmp_path: Path) -> None:
    for result in results:
        result.save(tmp_path / "x.json")
        again = CellResult.load(tmp_path / "x.json")
        again.save(tmp_path / "y.json")
        assert (tmp_path / "x.json").read_bytes() == (tmp_path / "y.json").read_bytes()
        np.testing.assert_equal(again.values("hd95"), result.values("hd95"))
