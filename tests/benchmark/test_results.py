"""Result files, and the tables of numbers that follow from them."""

import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.benchmark.committed import FIXTURE, many_patients, on_splits, with_column

from crac.benchmark import CellResult, load_results, merge_results
from crac.benchmark.report import compose
from crac.benchmark.results import MAIN, group_results
from crac.benchmark.tables import tables
from crac.errors import InputError
from crac.files import PARTIAL


def test_damaged_and_doubled_results_are_refused(tmp_path: Path) -> None:
    source = next((FIXTURE / "results").glob("*.json"))
    (tmp_path / "a.json").write_bytes(source.read_bytes())
    (tmp_path / f"{PARTIAL}a.json").write_bytes(source.read_bytes()[:1000])  # left by a kill
    assert len(load_results([tmp_path])) == 1
    (tmp_path / "b.json").write_bytes(source.read_bytes())
    with pytest.raises(InputError, match=r"b\.json holds the same cell as .*a\.json"):
        load_results([tmp_path])
    (tmp_path / "b.json").write_bytes(source.read_bytes()[:1000])
    with pytest.raises(InputError, match=r"b\.json cannot be read as JSON"):
        load_results([tmp_path])
    for text in ("[1]", '{"format": 1}', '{"format": 1, "volumes": {}, "history": {}, "cell": {"seed": 0}}'):
        (tmp_path / "b.json").write_text(text)
        with pytest.raises(InputError, match=r"b\.json is not the result of a benchmark"):
            load_results([tmp_path])
    (tmp_path / "b.json").write_text('{"format": 99}')
    with pytest.raises(InputError, match=r"b\.json has result format 99"):
        load_results([tmp_path])
    for old, new, problem in (
        ('"method": "ce", ', '"method": "mine", ', "has the method 'mine', this crac knows ce, "),
        ('"dataset": "phantom"', '"dataset": "../phantom"', r"is not the result of a benchmark: .* '\.\./phantom\."),
    ):
        text = (FIXTURE / "results" / "phantom.nnunet.ce.0.json").read_text()
        assert old in text
        (tmp_path / "b.json").write_text(text.replace(old, new))
        with pytest.raises(InputError, match=rf"b\.json {problem}"):
            load_results([tmp_path])
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="no results found there"):
        load_results([tmp_path / "empty"])


def test_saving_and_loading_change_nothing(results: list[CellResult], tmp_path: Path) -> None:
    results[0].volumes["train_006"][1] = float("nan")  # is written as null
    for result in results:
        result.save(tmp_path / "x.json")
        again = CellResult.load(tmp_path / "x.json")
        again.save(tmp_path / "y.json")
        assert (tmp_path / "x.json").read_bytes() == (tmp_path / "y.json").read_bytes()
        np.testing.assert_equal(again.volumes, result.volumes)
        assert again.cell == result.cell


def test_numbers_are_means_and_deviations_over_seeds(results: list[CellResult]) -> None:
    (group,) = group_results(results)
    assert group.methods == ["ce", "ce-temperature", "nacl", "crac-released"]
    assert group.ours == ["crac-released"]
    assert group.rivals == ["ce-temperature", "nacl"]
    assert group.sweeps == {"nacl": ("alpha", {0.05: "nacl-sweep-alpha0_05", 0.5: "nacl-sweep-alpha0_5"})}
    seeds = [[r.volumes[v][r.columns.index("dsc")] for v in r.volumes] for r in results if r.cell.method == "ce"]
    mean, sd = group.over_seeds("dsc").loc["ce"]
    assert len(seeds) == 2
    assert mean == pytest.approx(np.mean(seeds))
    assert sd == pytest.approx(np.std(np.mean(seeds, axis=1), ddof=1))
    assert np.isnan(group.over_seeds("dsc").loc["nacl-sweep-alpha0_5", "std"])  # one seed


def test_a_volume_without_a_value_is_left_out_and_a_seed_without_any_takes_the_mean_away(
    results: list[CellResult],
) -> None:
    ce = [result for result in results if result.cell.method == "ce"]
    index = ce[0].columns.index("hd95")
    first, second = ce[0].volumes
    ce[0].volumes[first][index] = float("nan")
    (group,) = group_results(results)
    assert group.runs.loc[("ce", 0), "hd95"] == ce[0].volumes[second][index]
    assert list(group.by_patient("hd95", ["ce", "nacl"]).index) == [ce[0].patients[second]]
    ce[0].volumes[second][index] = float("nan")
    (group,) = group_results(results)
    assert group.over_seeds("hd95").loc["ce"].isna().all()
    assert group.over_seeds("hd95").loc["nacl"].notna().all()
    assert group.difference("nacl", "ce", MAIN[1]) is None


def test_a_row_of_the_tables_is_a_point_of_the_sweep(results: list[CellResult]) -> None:
    named = [
        replace(r, settings={**r.settings, "method_options": {"alpha": 0.1}}) if r.cell.method == "nacl" else r
        for r in results
    ]
    (group,) = group_results(named)
    assert group.sweeps["nacl"][1] == {0.05: "nacl-sweep-alpha0_05", 0.1: "nacl", 0.5: "nacl-sweep-alpha0_5"}
    assert "nacl" in group.methods
    assert len(group.labels) == len(group.methods) + 2


def test_two_keywords_of_one_loss_have_a_sweep_each(results: list[CellResult]) -> None:
    others = [
        replace(
            r,
            cell=replace(r.cell, method=r.cell.method.replace("alpha", "margin"), sweep={"margin": number}),
            settings={**r.settings, "method_options": {"alpha": 0.05, "margin": number}},
        )
        for r in results
        for number in r.cell.sweep.values()
    ]
    content = compose(group_results([*results, *others]))
    assert content.groups[0].sweeps == {
        "nacl-alpha": ("alpha", {0.05: "nacl-sweep-alpha0_05", 0.5: "nacl-sweep-alpha0_5"}),
        "nacl-margin": ("margin", {0.05: "nacl-sweep-margin0_05", 0.5: "nacl-sweep-margin0_5"}),
    }
    captions = {table.name: table.caption for table in content.sections[0].tables}
    assert captions["sweep-nacl-margin-phantom-nnunet"] == "Phantom, nnunet: sensitivity of nacl to margin"
    figures = content.sections[0].figures
    assert figures["images/benchmark/sweep-nacl-alpha-phantom-nnunet.svg"] == "Sensitivity of nacl to its weight"
    assert figures["images/benchmark/sweep-nacl-margin-phantom-nnunet.svg"] == "Sensitivity of nacl to margin"
    content.drawn["images/benchmark/sweep-nacl-margin-phantom-nnunet.svg"]()


def test_a_measure_that_some_results_lack_is_left_out_for_all(results: list[CellResult]) -> None:
    """Old and new results may lie in one folder; a column is there for every method or not at all."""
    (old,) = group_results(results)
    assert "ece[band]" not in old.runs
    assert "ece[union_foreground]" in old.runs
    (new,) = group_results([with_column(result, "ece[band]") for result in results])
    assert new.runs["ece[band]"].notna().all()
    (mixed,) = group_results([with_column(results[0], "ece[band]"), *results[1:]])
    assert list(mixed.runs.columns) == list(old.runs.columns)
    assert list(mixed.volumes.columns) == list(old.volumes.columns)


def test_patients_not_volumes_are_drawn(results: list[CellResult]) -> None:
    (group,) = group_results(results)
    found = group.difference("crac-released", "ce", MAIN[0])
    assert found is not None
    means = group.over_seeds("dsc")["mean"]
    assert found.estimate == pytest.approx(means["crac-released"] - means["ce"])
    assert found.patients == 2
    (group,) = group_results([many_patients(result) for result in results])
    found = group.difference("crac-released", "ce", MAIN[0])
    assert found is not None
    assert found.patients == 6
    assert found.low < found.estimate < found.high


def test_only_seeds_that_both_have_are_compared(results: list[CellResult]) -> None:
    ours = [replace(r, cell=replace(r.cell, method="ours", seed=s)) for r in results[:1] for s in (0, 1)]
    theirs = [replace(r, cell=replace(r.cell, method="theirs", seed=s)) for r in results[1:2] for s in (1, 2)]
    column = theirs[1].columns.index("dsc")
    theirs[1] = replace(theirs[1], volumes={name: [0.0] * len(row) for name, row in theirs[1].volumes.items()})
    (group,) = group_results([*ours, *theirs])
    found = group.difference("ours", "theirs", MAIN[0])
    assert found is not None
    means = [np.mean([row[column] for row in r.volumes.values()]) for r in (ours[1], theirs[0])]
    assert found.estimate == pytest.approx(means[0] - means[1])
    (group,) = group_results([ours[0], theirs[0]])
    assert group.difference("ours", "theirs", MAIN[0]) is None


def test_splits_weigh_the_same_and_seeds_spread_within_them(results: list[CellResult]) -> None:
    three_and_one = [(0, 0, 0.81), (0, 1, 0.82), (0, 2, 0.86), (1, 0, 0.5)]
    (group,) = group_results(on_splits(results[0], {"ours": three_and_one, "theirs": [*three_and_one, (1, 1, 0.56)]}))
    means = group.over_seeds("dsc")
    assert means.loc["ours", "mean"] == pytest.approx((0.83 + 0.5) / 2)
    assert means.loc["ours", "std"] == pytest.approx(np.std([0.81, 0.82, 0.86], ddof=1))
    squares = 2 * np.var([0.81, 0.82, 0.86], ddof=1) + np.var([0.5, 0.56], ddof=1)
    assert means.loc["theirs", "std"] == pytest.approx(np.sqrt(squares / 3))
    found = group.difference("theirs", "ours", MAIN[0])  # over the trainings both have
    assert found is not None
    assert (found.estimate, found.patients) == (pytest.approx(0), 4)
    assert "| ours | 0-0, 0-1, 0-2, 1-0 |" in "".join(table.markdown() for table in tables(group))


def test_a_split_that_a_method_lacks_is_left_out_and_named(results: list[CellResult]) -> None:
    whole, part = [(0, 0, 0.8), (1, 0, 0.4)], [(0, 0, 0.9)]
    (group,) = group_results(on_splits(results[0], {"ours": whole, "theirs": part}))
    assert group.waiting == [1]
    assert group.over_seeds("dsc").loc["ours", "mean"] == pytest.approx(0.8)
    assert "Split 1 is left out here" in compose([group]).markdown()
    (group,) = group_results(on_splits(results[0], {"ours": whole, "theirs": whole}))
    assert group.waiting == []
    assert group.over_seeds("dsc").loc["ours", "mean"] == pytest.approx(0.6)
    assert "left out here" not in compose([group]).markdown()
    (group,) = group_results(
        on_splits(results[0], {"ours": whole[1:], "theirs": part})
    )  # none is shared: all are shown
    assert group.waiting == []
    assert list(group.over_seeds("dsc")["mean"]) == pytest.approx([0.4, 0.9])


def test_results_with_and_without_splits_are_not_mixed(results: list[CellResult]) -> None:
    with_split = replace(results[0], cell=replace(results[0].cell, split=0))
    with pytest.raises(InputError, match="some results on phantom with nnunet are of a suite with several splits and"):
        group_results([*results, with_split])


def test_results_of_different_masks_are_not_mixed(results: list[CellResult]) -> None:
    other = [name.replace("[union_foreground]", "[band]") for name in results[0].columns]
    with pytest.raises(InputError, match=r"on phantom with nnunet .* share neither band nor union_foreground: keep"):
        group_results([replace(results[0], columns=other), *results[1:]])


def test_nothing_is_claimed_of_few_patients(results: list[CellResult]) -> None:
    (group,) = group_results(results)
    found = group.difference("crac-released", "ce", MAIN[0])
    assert found is not None
    assert np.isnan([found.low, found.high]).all()
    assert found.verdict == ""
    assert found.words == "too few patients to compare"
    assert found.interval == "-0.009"


def test_groups_are_in_order_and_the_paper_s_backbone_is_first(results: list[CellResult]) -> None:
    places = [("b", "nnunet"), ("b", "unet"), ("a", "unet")]
    moved = [replace(r, cell=replace(r.cell, dataset=d, backbone=b)) for r in results for d, b in places]
    assert [group.name for group in group_results(moved)] == ["a-unet", "b-unet", "b-nnunet"]


def test_an_archive_is_read_as_the_files_in_it(results: list[CellResult], tmp_path: Path) -> None:
    folder = tmp_path / "results"
    folder.mkdir()
    with tarfile.open(folder / "all.tar.xz", "w:xz") as archive:
        archive.add(FIXTURE / "results", arcname="results")
    assert load_results([folder]) == load_results([FIXTURE / "results"])
    assert len(merge_results([folder], tmp_path / "merged")) == len(load_results([folder]))
    assert load_results([tmp_path / "merged"]) == load_results([folder])
    with pytest.raises(InputError, match=r"all.tar.xz, results/.* holds the same cell as .*merged"):
        load_results([tmp_path / "merged", folder])
    (folder / "all.tar.xz").write_bytes((folder / "all.tar.xz").read_bytes()[:1000])
    with pytest.raises(InputError, match=r"all\.tar\.xz cannot be read as an archive"):
        load_results([folder])
