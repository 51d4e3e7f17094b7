"""The tables of a benchmark."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from crac.benchmark.results import MAIN, MASK, MOST_SHOWN, CellResult, Group, by_data
from crac.errors import require
from crac.losses import METHODS
from crac.metrics.claims import LEAST_PATIENTS, too_few
from crac.report.comparison import Column, Table
from crac.report.measure import Difference, Measure

pandas = require("pandas")

if TYPE_CHECKING:
    from pandas import DataFrame

REGIONS = tuple(
    Measure(f"pooled.{key}.{region}", f"{region} {heading}", 3, higher, signed)
    for key, heading, higher, signed in (("ece", "ECE", False, False), ("gap", "gap", None, True))
    for region in ("inner", "outer")
)
MASKS = {
    "union_foreground": ("union", "labelled or predicted so"),
    "band": ("band", "near those"),
    "all": ("all", "anywhere"),
}
OTHERS = [Measure(f"nll[{MASK}]", "NLL"), Measure(f"brier[{MASK}]", "BRIER")]
for _mask, (_name, _) in MASKS.items():
    OTHERS += [Measure(f"{key}[{_mask}]", f"{key.upper()}, {_name}") for key in ("ece", "tace", "nll", "brier")]
COSTS = (
    Measure("training", "training (s)", 1, None),
    Measure("evaluation", "test (s)", 1, None),
    Measure("best_epoch", "best epoch", 1, None),
    Measure("temperature", "temperature", 2, None),
)


def main_table(groups: Sequence[Group], paper: bool = False) -> Table:
    """Return the paper's table of one backbone, all data sets side by side, on demand with the paper's values."""
    backbone = groups[0].backbone
    longest_first = sorted(groups, key=lambda group: -len(group.methods))
    rows = {method: group.labels[method] for group in longest_first for method in group.methods}
    columns = []
    for group, measure in itertools.product(groups, MAIN):
        column = column_of(group, measure._replace(heading=f"{group.label} {measure.heading}"), group.methods)
        columns.append(replace(column, paper=paper_values(group)[measure.key]) if paper else column)
    beside = "; in brackets the paper's value" if paper else ""
    name = "-".join(filter(None, [groups[0].objective, backbone]))
    within = " of one split" if any(len({r.cell.split for r in group.results}) > 1 for group in groups) else ""
    caption = f"{name}: mean ± standard deviation over seeds{within}{beside}"
    return Table(f"main-{name}", caption, rows, columns).ranked()


def fair_table(group: Group) -> Table:
    """Return the measures whose voxels do not depend on how sure a network is, with intervals over patients."""
    columns = []
    for measure in group.fair:
        found = {method: one for method in group.methods if (one := group.interval(method, measure)) is not None}
        frame = pandas.DataFrame({m: one[1:4] for m, one in found.items()}, index=["mean", "low", "high"]).T
        columns.append(Column(measure, frame["mean"], bounds=frame))
    where = {
        "band": "within 5 voxels of labelled or predicted foreground",
        "union_foreground": "labelled or predicted so",
    }
    caption = (
        f"{group.title}, no voxel left out for its probability ({group.fair_mask}: {where[group.fair_mask]}): mean "
        "over patients"
    )
    number = group.volumes["patient"].nunique()
    caption += (
        f"; {too_few(number)}" if number < LEAST_PATIENTS else ", with the 95 % interval of a bootstrap over them"
    )
    rows = {method: group.labels[method] for method in group.methods}
    return Table(f"fair-{group.name}", caption, rows, columns)


def objective_tables(groups: Sequence[Group]) -> Iterator[Table]:
    """Yield what each further objective changes, method by method, on the same patients by the same trainings."""
    for first, *others in by_data(group for group in groups if group.objective):
        yield from (table for other in others if (table := _objectives(first, other)))


def _objectives(first: Group, other: Group) -> Table | None:
    """One objective minus another, networks as trained; None where no method has both."""
    pairs = {
        method: Group(
            replace(result, cell=replace(result.cell, method=result.cell.objective))
            for result in (*first.of[method], *other.of[method])
        )
        for method in first.trained
        if method in other.trained
    }
    if not pairs:
        return None
    known = min((first, other), key=lambda group: group.fair_mask == "band")  # the measures that both have
    columns = _compared(
        known, pairs, lambda method, measure: pairs[method].difference(other.objective, first.objective, measure)
    )
    number = min(group.volumes["patient"].nunique() for group in pairs.values())
    caption = f"{first.label}, {first.backbone}: {other.objective} minus {first.objective}, networks as trained"
    caption += (
        f"; {too_few(number)}"
        if number < LEAST_PATIENTS
        else f", with the 95 % interval of a paired bootstrap over the {number} test patients both have"
    )
    return Table(f"objectives-{other.name}", caption, {method: first.labels[method] for method in pairs}, columns)


def tables(group: Group) -> Iterator[Table]:
    """Yield the further tables of a group: by class, by region, other measures, differences, sweeps, costs."""
    title, organs = group.title, group.classes[1:]
    if group.methods:
        measures = [Measure(f"dsc.{name}", f"{name} DSC", 3, True) for name in organs]
        measures += [Measure(f"hd95.{name}", f"{name} HD95", 2) for name in organs]
        measures += [Measure(f"pooled.ece.{name}", f"{name} ECE") for name in organs]
        caption = f"{title}, by class: DSC and HD95 per volume; ECE of the class against the rest, all voxels pooled"
        yield _table(group, "classes", caption, measures)
        caption = f"{title}, by region, all voxels pooled; gap: confidence minus accuracy"
        yield _table(group, "regions", caption, REGIONS)
        known = ", ".join(f"({name}) {place}" for mask, (name, place) in MASKS.items() if f"ece[{mask}]" in group.runs)
        caption = f"{title}, other measures: of voxels labelled foreground, and {known}"
        yield _table(group, "measures", caption, OTHERS)
    if len(group.methods) > 1:
        many = len(group.methods) > MOST_SHOWN
        yield from (_differences(group, method) for method in (best_of(group, group.ours) if many else group.ours))
    if table := _harm(group):
        yield table
    for name, (option, methods) in group.sweeps.items():
        rows = {
            method: group.labels[method] + ("" if group.of[method][0].cell.sweep else f" {option} {value:g}")
            for value, method in methods.items()
        }
        rows |= {method: group.labels[method] for method in group.ours}
        loss = name.removesuffix(f"-{option}")
        yield _table(group, f"sweep-{name}", f"{title}: sensitivity of {loss} to {option}", MAIN, rows)
    runs = {method: ", ".join(str(result.cell.run) for result in found) for method, found in group.of.items()}
    heading = "seeds" if group.results[0].cell.split is None else "split-seed"
    rows = {method: group.labels[method] for method in [*group.methods, *group.labels]}
    costs = _table(group, "cost", f"{title}: what each run took", COSTS, rows)
    yield replace(costs, columns=[Column(Measure("runs", heading, 0, None), pandas.Series(runs)), *costs.columns])


def paper_values(group: Group) -> DataFrame:
    """Return what the paper prints: a row per method of the group that it has, a column per measure."""
    printed = yaml.safe_load(Path(__file__).with_name("paper.yaml").read_text(encoding="utf-8"))
    keys = [measure.key for measure in MAIN]
    table: DataFrame = pandas.DataFrame(columns=keys, dtype=float)
    if group.backbone not in printed["tables"] or group.dataset not in printed["datasets"]:
        return table
    start = len(keys) * printed["datasets"].index(group.dataset)
    table = pandas.DataFrame(printed["tables"][group.backbone]).T.iloc[:, start : start + len(keys)]
    firsts = [group.of[method][0] for method in group.methods]
    # The preset signed is ours: the paper's value of its loss is not one of it.
    theirs = [one for one in firsts if one.cell.as_trained and one.settings["method_options"].get("preset") != "signed"]
    known = {one.cell.method: loss for one in theirs if (loss := one.settings["method"]) in table.index}
    return table.loc[list(known.values())].set_axis(list(known)).set_axis(keys, axis=1)


def column_of(group: Group, measure: Measure, rows: Iterable[str]) -> Column:
    """Return a measure of some methods: means and standard deviations over seeds."""
    numbers = group.over_seeds(measure.key).loc[list(rows)]
    return Column(measure, numbers["mean"], numbers["std"])


def _table(
    group: Group, name: str, caption: str, measures: Sequence[Measure], rows: Mapping[str, str] | None = None
) -> Table:
    """A table of the measures that the results have, by default of all methods but the values of sweeps."""
    rows = rows or {method: group.labels[method] for method in group.methods}
    columns = [column_of(group, measure, rows) for measure in measures if measure.key in group.runs]
    return Table(f"{name}-{group.name}", caption, rows, columns)


def _differences(group: Group, method: str) -> Table:
    """One of our methods against every rival: difference, 95 % interval, and what it means."""
    rivals = {rival: group.labels[rival] for rival in group.methods if rival != method}
    columns = _compared(group, rivals, lambda rival, measure: group.difference(method, rival, measure))
    number = group.volumes["patient"].nunique()
    over = f"a paired bootstrap over the {number} test patients; better, worse: it leaves out 0"
    caption = f"{group.title}: {group.labels[method]} minus each rival, means over the seeds both have" + (
        f"; {too_few(number)}" if number < LEAST_PATIENTS else f", with the 95 % interval of {over}"
    )
    return Table(f"bootstrap-{method}-{group.name}", caption, rivals, columns, "against")


def _compared(group: Group, rows: Iterable[str], compare: Callable[[str, Measure], Difference | None]) -> list[Column]:
    """Columns of differences, with what they mean: the paper's measures, and those of voxels near foreground."""
    columns = []
    for measure in (*MAIN, *on_band(group)):
        found = {row: compare(row, measure) for row in rows}
        texts = {row: f"{one.interval} {one.verdict}".strip() for row, one in found.items() if one is not None}
        columns.append(Column(measure._replace(higher=None), pandas.Series(texts, dtype=object)))
    return columns


def on_band(group: Group) -> list[Measure]:
    """The fair measures that differences are shown of."""
    name = MASKS[group.fair_mask][0]
    return [one._replace(heading=f"{one.heading}, {name}") for one in (group.fair[0], group.fair[2])]


def best_of(group: Group, methods: Sequence[str]) -> list[str]:
    """The one of some methods with the best Friedman rank among all; none where there is no rank."""
    ranked = main_table([group]).columns[-2].values.reindex(list(methods)).dropna()
    return [str(ranked.idxmin())] if len(ranked) else []


def _harm(group: Group) -> Table | None:
    """CRaC with the preset ``signed`` minus the loss without it, both used in the same way; None without such rows."""
    firsts = {method: group.of[method][0] for method in group.methods}
    ways = {m: (r.cell.calibrator, r.cell.fitted_on, r.cell.mirror, _beside(r)) for m, r in firsts.items()}
    plain = {ways[m]: m for m, r in firsts.items() if r.settings["method"] == "ce"}
    pairs = {
        method: plain[ways[method]]
        for method, result in firsts.items()
        if result.settings["method_options"].get("preset") == "signed" and ways[method] in plain
    }
    if not pairs:
        return None
    columns = _compared(group, pairs, lambda method, measure: group.difference(method, pairs[method], measure))
    caption = f"{group.title}: CRaC (signed) minus the same loss without it, used in the same way; intervals as above"
    return Table(f"harm-{group.name}", caption, {method: group.labels[method] for method in pairs}, columns)


def _beside(result: CellResult) -> str:
    """What a loss is added to, as text: the options that cross-entropy has as well, such as a weight of Dice."""
    given = result.settings["method_options"]
    return repr([(name, given[name]) for name in inspect.signature(METHODS["ce"]).parameters if name in given])
