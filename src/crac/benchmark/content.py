"""Which tables there are: the paper's, by class, by region, by mask, the sweeps, what they cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from crac.benchmark.paper import paper_value
from crac.benchmark.result import CellResult
from crac.benchmark.scores import MAIN, MASK, Group, Row
from crac.benchmark.tables import Entry, Measure, Number, Table, ranked_table

__all__ = ["class_table", "cost_table", "main_table", "mask_table", "region_table", "sweep_table"]

UNION = "union_foreground"


def main_table(groups: Sequence[Group], paper: bool = False) -> Table:
    """The paper's table: all data sets side by side, for one backbone.

    Args:
        groups: Of the same backbone, one per data set.
        paper: Print the paper's value beside ours.
    """
    labels = {row.method: row.label for group in groups for row in group.rows}
    order = sorted(labels, key=lambda method: _place(groups, method))
    rows = {labels[method]: [_main(group, method, m, paper) for group in groups for m in MAIN] for method in order}
    headings = [f"{group.label} {measure.heading}" for group in groups for measure in MAIN]
    backbone = groups[0].backbone
    beside = "; in brackets the paper's value" if paper else ""
    return ranked_table(
        f"main-{backbone}",
        f"{backbone}: mean ± standard deviation over seeds{beside}",
        headings,
        rows,
        [measure.higher for measure in MAIN] * len(groups),
    )


def class_table(group: Group) -> Table:
    """Overlap and distance of every foreground class, and the calibration of its probability."""
    names = group.classes[1:]
    measures = [Measure(f"dsc.{name}", f"{name} DSC", 3, True) for name in names]
    measures += [Measure(f"hd95.{name}", f"{name} HD95", 2) for name in names]
    rows: dict[str, list[Number | None]] = {}
    for row in group.rows:
        entries = [row.number(measure) for measure in measures]
        entries += [row.over_seeds(_pooled(MASK, "by_class", name, "ece")) for name in names]
        rows[row.label] = entries
    headings = [measure.heading for measure in measures] + [f"{name} ECE" for name in names]
    higher = [measure.higher for measure in measures] + [False] * len(names)
    caption = f"{group.title}, by class: DSC and HD95 per volume; ECE of the class against the rest, all voxels pooled"
    return ranked_table(f"classes-{group.name}", caption, headings, rows, higher, rank=False)


def region_table(group: Group) -> Table:
    """Inside organs and on their boundaries: ECE, and confidence minus accuracy with its sign."""
    rows = {
        row.label: [
            *(row.over_seeds(_pooled(MASK, "by_region", region, "ece")) for region in ("inner", "outer")),
            *(row.over_seeds(_pooled(MASK, "by_region", region, "gap"), signed=True) for region in ("inner", "outer")),
        ]
        for row in group.rows
    }
    headings = ["inner ECE", "outer ECE", "inner gap", "outer gap"]
    caption = f"{group.title}, by region, all voxels pooled; gap: confidence minus accuracy, above 0 is overconfident"
    return ranked_table(f"regions-{group.name}", caption, headings, rows, [False, False, None, None], rank=False)


def mask_table(group: Group) -> Table:
    """Beside the paper's measures: proper scores, and voxels wrongly called foreground counted too."""
    measures = [Measure(f"{name}[{MASK}]", name.upper()) for name in ("nll", "brier")]
    measures += [Measure(f"{name}[{UNION}]", f"{name.upper()}, union") for name in ("ece", "tace", "nll", "brier")]
    rows = {row.label: [row.number(measure) for measure in measures] for row in group.rows}
    caption = f"{group.title}, other measures: of voxels labelled foreground, and (union) labelled or predicted so"
    headings = [measure.heading for measure in measures]
    return ranked_table(f"measures-{group.name}", caption, headings, rows, [False] * len(measures), rank=False)


def sweep_table(group: Group, method: str) -> Table:
    """A sweep, and the methods without one below it."""
    sweep = group.sweeps[method]
    swept = {sweep.label(value): row for value, row in sweep.rows.items()}
    others = {row.label: row for row in compared(group)}
    rows = {label: [row.number(measure) for measure in MAIN] for label, row in {**swept, **others}.items()}
    caption = f"{group.title}: sensitivity of {method} to {sweep.option}"
    headings, higher = [measure.heading for measure in MAIN], [measure.higher for measure in MAIN]
    return ranked_table(f"sweep-{method}-{group.name}", caption, headings, rows, higher, rank=False)


def cost_table(group: Group) -> Table:
    """What a run took, and the temperature where one was fitted."""
    rows: list[list[Entry]] = []
    for row in group.all_rows():
        seeds = ", ".join(str(result.cell.seed) for result in row.results)
        tempered = row.results[0].cell.tempered
        entries: list[Entry] = [row.label, seeds]
        entries.append(row.over_seeds(lambda result: result.seconds["training"], 1))
        entries.append(row.over_seeds(lambda result: result.seconds["evaluation"], 1))
        entries.append(row.over_seeds(lambda result: result.best_epoch, 1))
        entries.append(row.over_seeds(lambda result: result.temperature, 2) if tempered else None)
        rows.append(entries)
    header = ["method", "seeds", "training (s)", "test (s)", "best epoch", "temperature"]
    return Table(f"cost-{group.name}", f"{group.title}: what each run took", header, rows)


def compared(group: Group) -> list[Row]:
    """The methods a sweep is held against: ours."""
    return [row for row in group.rows if row.is_crac]


def _main(group: Group, method: str, measure: Measure, paper: bool) -> Number | None:
    row = group.row(method)
    if row is None:
        return None
    number = row.number(measure)
    if number is None or not paper:
        return number
    return replace(number, paper=paper_value(row.results[0], measure.key.partition("[")[0]))


def _place(groups: Sequence[Group], method: str) -> tuple[float, ...]:
    """Where a method stands among the rows, in the first group that has it."""
    found = [[row.method for row in group.rows] for group in groups]
    longest = max(found, key=len)
    return (longest.index(method),) if method in longest else (len(longest), float(len(method)))


def _pooled(mask: str, *path: str) -> Callable[[CellResult], Any]:
    def value(result: CellResult) -> Any:
        found: Any = result.pooled[mask]
        for key in path:
            found = found[key]
        return found

    return value
