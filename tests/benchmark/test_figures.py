"""Which figures there are, and what they show; that their bytes repeat is tested with the report."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.benchmark.committed import many_patients, with_column

from crac.benchmark import CellResult
from crac.benchmark.figures import draw_maps, drawings, glances
from crac.benchmark.results import Group, group_results
from crac.benchmark.suite import Cell
from crac.palette import pyplot


@pytest.fixture(autouse=True)
def _closed():  # type: ignore[no-untyped-def]
    yield
    pyplot().close("all")


def drawn(results: list[CellResult]):  # type: ignore[no-untyped-def]
    return {name.removesuffix("-phantom-nnunet"): draw for name, _, draw in drawings(Group(results))}


def test_every_figure_the_results_are_there_for(results: list[CellResult]) -> None:
    ranks = {f"ranks-{name}" for name in ("dsc", "hd95", "ece", "tace")}
    assert set(drawn(results)) == {"reliability", "logits", "multipliers", "sweep-nacl"}  # of two patients, no ranks
    assert set(drawn([many_patients(result) for result in results])) - set(drawn(results)) == ranks
    plain = [result for result in results if result.cell.method in ("ce", "nacl")]
    assert set(drawn(plain)) == {"reliability", "logits"}  # two methods have no critical difference
    swept = [result for result in results if result.cell.sweep]
    assert set(drawn(swept)) == {"sweep-nacl"}


def test_methods_that_do_not_differ_have_no_ranks(results: list[CellResult]) -> None:
    first = many_patients(results[0])
    same = [replace(many_patients(result), volumes=first.volumes) for result in results]
    assert not any(name.startswith("ranks") for name in drawn(same))


def test_reliability_pools_the_seeds(results: list[CellResult]) -> None:
    figure = drawn(results)["reliability"]()
    axis = figure.axes[0]
    pooled = [result.pooled["label_foreground"] for result in results if result.cell.method == "ce"]
    ece, gap = (np.mean([one[name] for one in pooled]) for name in ("ece", "gap"))
    assert axis.get_title() == f"CE\nECE {ece:.3f}, gap {gap:+.3f}"
    counts = np.array([one["bins"]["counts"] for one in pooled])
    accuracy = np.array([one["bins"]["accuracy"] for one in pooled], dtype=float)
    place = int(counts.sum(0).argmax())
    expected = np.nansum(counts[:, place] * accuracy[:, place]) / counts[:, place].sum()
    assert axis.patches[place].get_height() == pytest.approx(expected)
    assert np.isnan(axis.patches[0].get_height())  # no voxel is less than 7 % sure among five classes


def test_a_sweep_shows_its_values_and_ours_as_lines(results: list[CellResult]) -> None:
    figure = drawn(results)["sweep-nacl"]()
    left = figure.axes[0]
    assert left.get_xlabel() == "alpha"
    assert left.lines[0].get_xdata().tolist() == [0.05, 0.5]
    group = Group(results)
    assert left.lines[0].get_ydata().tolist() == group.over_seeds("dsc")["mean"].iloc[-2:].tolist()
    assert {text.get_text() for text in figure.legends[0].get_texts()} == {"nacl, by alpha", "CRaC (released)"}


def test_multipliers_are_means_over_seeds(results: list[CellResult]) -> None:
    figure = drawn(results)["multipliers"]()
    name = "lambda_outer_liver"
    ours = [result.history[name] for result in results if result.cell.method == "crac-released"]
    line = next(line for line in figure.axes[0].lines if line.get_label() == "liver, outer")
    assert line.get_ydata().tolist() == pytest.approx(np.mean(ours, axis=0).tolist())


def test_a_price_that_all_classes_share_is_one_line(results: list[CellResult]) -> None:
    one = {name: [1.0, 2.0] for name in results[0].history if name == "epoch"}
    changed = [
        replace(r, history=one | {n: [0.5, 0.25] if "inner" in n else h for n, h in r.history.items() if n != "epoch"})
        for r in results
        if r.cell.method == "crac-released"
    ]
    figure = drawn(changed)["multipliers"]()
    labels = [line.get_label() for line in figure.axes[0].lines]
    classes = changed[0].classes
    assert labels == ["all classes, inner", *(f"{name}, outer" for name in classes)]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == labels


def test_a_glance_shows_every_way_of_using_each_network(results: list[CellResult]) -> None:
    assert not list(glances(group_results(results)))  # temperature of one method only
    first = with_column(results[0], "nll[band]")
    made = []
    for objective, worse in (("CE", 0.0), ("Dice-CE", 0.2)):
        for method in ("ce", "fl"):
            for calibrator, ending, gain in ((None, "", 0.0), ("temperature", " + T", 0.1)):
                cell = Cell("phantom", "nnunet", method + ending, 0, method + ending, objective=objective)
                cell = replace(cell, base=method if ending else "", calibrator=calibrator)
                volumes = {name: [*row[:-1], 0.5 + worse - gain] for name, row in first.volumes.items()}
                made.append(replace(first, cell=cell, volumes=volumes))
    ((name, _, draw),) = glances(group_results(made))
    assert name == "glance-phantom-nnunet"
    left, right = draw().axes
    assert [text.get_text() for text in left.get_yticklabels()] == ["ce", "fl"]
    for axis, values in ((left, [0.5, 0.4]), (right, [0.7, 0.6])):
        points = [line for line in axis.lines if line.get_linestyle() == "None"]
        assert [line.get_xdata()[0] for line in points] == pytest.approx(values * 2)
        assert [line.get_label() for line in points[:2]] == ["as trained", "T"]
    ((_, _, draw),) = glances(group_results(made[:2] + made[4:]))  # the second loss in one objective only
    left, right = draw().axes
    assert [text.get_text() for text in left.get_yticklabels()] == ["ce", "fl"]
    places = [[line.get_ydata()[0] for line in axis.lines if line.get_linestyle() == "None"] for axis in (left, right)]
    assert places == [[0, 0], [0, 0, 1, 1]]
    (group,) = group_results(made[:4])
    assert [len(draw().axes) for _, _, draw in glances([group])] == [1]
    assert not list(glances(group_results(made[:3])))  # the second loss as trained only


def test_a_glance_marks_each_way_alike_where_a_loss_lacks_one(results: list[CellResult]) -> None:
    first, made = with_column(results[0], "nll[band]"), []
    for method, calibrators in {"ce": (None, "temperature", "class_region"), "fl": (None, "class_region")}.items():
        for calibrator in calibrators:
            name = f"{method} + {calibrator}" if calibrator else method
            cell = Cell("phantom", "nnunet", name, 0, name, base=method if calibrator else "", calibrator=calibrator)
            made.append(replace(first, cell=cell))
    ((_, _, draw),) = glances(group_results(made))
    figure = draw()
    looks: dict[str, set[tuple[str, str]]] = {}
    for line in figure.axes[0].lines:
        if line.get_linestyle() == "None":
            looks.setdefault(line.get_label(), set()).add((line.get_color(), line.get_marker()))
    assert [len(own) for own in looks.values()] == [1, 1, 1]
    assert len(set.union(*looks.values())) == 3
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["as trained", "temperature", "class_region"]
    assert len([line for line in figure.axes[0].lines if line.get_label() == "class_region"]) == 2


def test_maps_show_the_methods_whose_slices_were_kept(results: list[CellResult], tmp_path: Path) -> None:
    group = Group(results)
    assert not list(draw_maps(group, tmp_path))
    label = np.zeros((12, 16), dtype=np.uint8)
    label[3:6, 4:9] = 2
    parts = {"image": label * 80, "label": label, "prediction": np.roll(label, 1), "confidence": 255 - label}
    slices = {f"{which}_{name}": array for which in ("best", "worst") for name, array in parts.items()}
    slices |= {
        f"{which}_{name}": np.array(value)
        for which in ("best", "worst")
        for name, value in (("name", "p1"), ("dsc", 0.5), ("aspect", 2.5))
    }
    for method in ("ce", "nacl"):
        np.savez(tmp_path / f"phantom.nnunet.{method}.0.npz", **slices)
    ((name, what, draw),) = draw_maps(group, tmp_path)
    assert name == "maps-phantom-nnunet"
    assert what.startswith("Best and worst volume")
    axes = draw().axes
    assert [axis.get_ylabel() for axis in axes if axis.get_ylabel()] == ["CE", "NACL", "confidence"]
    assert [axis.get_title() for axis in axes[:4]] == ["best: p1, DSC 0.500", "", "worst: p1, DSC 0.500", ""]
    assert [axis.get_aspect() for axis in axes[:4]] == [2.5] * 4
    assert len(axes[0].collections) == 2  # the outlines of one organ: label and prediction


def test_rows_without_the_networks_as_trained_are_drawn(results: list[CellResult]) -> None:
    """Only the network as trained keeps its logits and its curves."""
    cool = [
        replace(result, cell=replace(result.cell, method=f"{result.cell.method}-{number}"), logits={}, history={})
        for result in results
        if result.cell.calibrator is not None
        for number in range(20)
    ]
    for given in (cool[:1], cool):
        (group,) = group_results(given)
        names = [name for name, _, _ in drawings(group)]
        assert "reliability-phantom-nnunet" in names
        assert "logits-phantom-nnunet" not in names
        for _, _, draw in drawings(group):
            draw()


def test_multipliers_of_trainings_of_different_lengths_are_drawn_as_far_as_all_go(results: list[CellResult]) -> None:
    """As of results of two folders that are rendered together."""
    first, second = (result for result in results if result.cell.method == "crac-released")
    short = replace(second, history={name: values[:1] for name, values in second.history.items()})
    line = drawn([first, short])["multipliers"]().axes[0].get_lines()[0]
    assert list(line.get_xdata()) == [1]
    name = "lambda_inner_background"
    assert list(line.get_ydata()) == [(first.history[name][0] + second.history[name][0]) / 2]
    line = drawn([first, replace(second, history={})])["multipliers"]().axes[0].get_lines()[0]
    assert list(line.get_ydata()) == first.history[name]
