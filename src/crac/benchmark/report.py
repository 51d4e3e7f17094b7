"""Tables, figures and the page of a benchmark, from results alone: the same results give the same bytes."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from crac.benchmark.figures import MAPS, draw_maps, drawings
from crac.benchmark.results import MAIN, MASK, MOST_SHOWN, Group, group_results, load_results
from crac.benchmark.suite import FROM_THE_CELL
from crac.errors import require
from crac.files import replacing, write_text, writing
from crac.metrics import friedman_rank
from crac.metrics.claims import LEAST_PATIENTS, patient_mean, side_of_zero, too_few
from crac.palette import pyplot
from crac.report.measure import Difference, Measure

jinja2, pandas = require("jinja2"), require("pandas")
require("scikit_posthocs")

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame, Series

TABLES, IMAGES = "tables", "images/benchmark"

NOTES = "reading.md"
"""Text written by hand beside the results, which becomes part of the page."""

REGIONS = tuple(
    Measure(f"pooled.{key}.{region}", f"{region} {heading}", 3, higher, signed)
    for key, heading, higher, signed in (("ece", "ECE", False, False), ("gap", "gap", None, True))
    for region in ("inner", "outer")
)
WHERE = {"inner": "Inside organs", "outer": "On boundaries"}
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


MARKDOWN = ("**{}**", "<u>{}</u>", "±", "-")
LATEX = (r"\textbf{{{}}}", r"\underline{{{}}}", r"$\pm$", "--")
"""How a format writes the best entry of a column, the second, plus-minus, and an entry that is missing."""

ESCAPES = str.maketrans({"\\": r"\textbackslash{}", "±": r"$\pm$", "λ": r"$\lambda$", **{c: rf"\{c}" for c in "_%&#"}})


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Args:
        measure: How its numbers are named, rounded and compared.
        values: Numbers, or text, by row; rows without one are missing or NaN.
        sd: Standard deviations over seeds by row, if there are any.
        paper: What the paper prints by row, if it is shown.
        bounds: Ends of the 95 % interval by row, ``low`` and ``high``, if it is shown instead of deviations.
    """

    measure: Measure
    values: Series[Any]
    sd: Series[float] | None = None
    paper: Series[float] | None = None
    bounds: DataFrame | None = None

    @functools.cached_property
    def printed(self) -> Series[float]:
        """The numbers as printed: marks and ranks follow from these, so that readers can check them."""
        return self.values.dropna().map(self.measure.rounded).astype(float)

    def parts(self) -> Iterator[tuple[str, Series[Any] | None]]:
        """Yield the numbers of the column, each with what it adds to the heading."""
        yield "", self.values
        yield " sd", self.sd
        if self.bounds is not None:
            yield " low", self.bounds["low"]
            yield " high", self.bounds["high"]
        yield " paper", self.paper

    def text(self, row: str, style: tuple[str, ...] = MARKDOWN) -> str:
        """Return an entry: mean ± standard deviation or [interval], marked, with the paper's value in brackets."""
        value, sd, paper = (
            math.nan if one is None else one.get(row, math.nan) for one in (self.values, self.sd, self.paper)
        )
        if isinstance(value, str):
            return value if style is MARKDOWN else value.translate(ESCAPES)
        if math.isnan(value):
            return style[3]
        text = self.measure.shown(value)
        if not math.isnan(sd):
            text += f" {style[2]} {self.measure.shown(sd, signed=False)}"
        if self.bounds is not None and row in self.bounds.dropna().index:
            low, high = (self.measure.shown(float(self.bounds[end][row])) for end in ("low", "high"))
            text += f" [{low}, {high}]"
        order = [] if self.measure.higher is None else sorted(set(self.printed), reverse=self.measure.higher)
        if len(order) > 1 and self.printed[row] in order[:2]:
            text = style[order.index(self.printed[row])].format(text)
        return text if math.isnan(paper) else f"{text} ({self.measure.shown(paper)})"


@dataclass(frozen=True)
class Table:
    """A table of methods, and its three forms.

    Args:
        name: Name of its files.
        caption: What it shows.
        rows: Key of a row in the columns -> label.
        columns: The columns.
        corner: Heading of the labels.
    """

    name: str
    caption: str
    rows: Mapping[str, str]
    columns: Sequence[Column]
    corner: str = "method"

    def markdown(self) -> str:
        """Return the table for pages."""
        frame = self._texts(MARKDOWN)
        lines = [list(frame.columns), ["---", *["---:"] * len(self.columns)], *frame.to_numpy().tolist()]
        return "".join(f"| {' | '.join(line)} |\n" for line in lines)

    def latex(self) -> str:
        """Return the table for papers; it needs the package booktabs."""
        frame = self._texts(LATEX).rename(columns=lambda heading: heading.translate(ESCAPES))
        layout = f"l{'r' * len(self.columns)}"
        return f"% {self.caption}\n" + frame.to_latex(index=False, escape=False, column_format=layout)

    def csv(self) -> str:
        """Return the table for programs: deviations and the paper's values in columns of their own."""
        parts = {
            f"{column.measure.heading}{ending}": values.reindex(list(self.rows))
            for column in self.columns
            for ending, values in column.parts()
            if values is not None and (not ending or values.notna().any())
        }
        frame = pandas.DataFrame(parts).set_axis(pandas.Index(self.rows.values(), name=self.corner))
        text: str = frame.to_csv(float_format="%.7g", lineterminator="\n")
        return text

    def ranked(self) -> Table:
        """Return the table with the Friedman rank and the final rank; a row with a missing entry has none."""
        compared = [column for column in self.columns if column.measure.higher is not None]
        printed = pandas.concat([column.printed for column in compared], axis=1).reindex(list(self.rows)).dropna()
        mean = pandas.Series(index=list(self.rows), dtype=float)
        if len(printed):
            mean[printed.index] = friedman_rank(printed, [bool(column.measure.higher) for column in compared])
        friedman = Column(Measure("friedman", "Friedman rank", 2), mean)
        final = Column(Measure("final", "final rank", 0, None), mean.rank(method="min"))
        return replace(self, columns=[*self.columns, friedman, final])

    def _texts(self, style: tuple[str, ...]) -> DataFrame:
        labels = [label if style is MARKDOWN else label.translate(ESCAPES) for label in self.rows.values()]
        columns = {c.measure.heading: [c.text(row, style) for row in self.rows] for c in self.columns}
        frame: DataFrame = pandas.DataFrame({self.corner: labels, **columns})
        return frame


def render(
    results: Sequence[str | Path], out: str | Path, maps: str | Path | None = None, paper: bool = False
) -> list[Path]:
    """Write ``benchmark.md``, ``tables/`` (Markdown, LaTeX, CSV) and ``images/benchmark/``.

    Args:
        results: Folders of result files.
        out: Folder to write into.
        maps: Folder of slices, for the pictures of segmentations; those already in ``out`` stay.
        paper: Print the paper's values beside ours.

    Returns:
        The files that were written.
    """
    out, groups = Path(out), group_results(load_results(results))
    notes = [path.read_text(encoding="utf-8") for folder in results if (path := Path(folder) / NOTES).is_file()]
    texts, figures = compose(groups, out, None if maps is None else Path(maps), paper, "\n".join(notes))
    with writing(out):
        for folder in (out / TABLES, out / IMAGES):
            folder.mkdir(parents=True, exist_ok=True)
    for name, draw in figures.items():
        figure = draw()
        with replacing(out / name) as partial:
            # Without the version of the program in it, the file depends on the picture alone.
            figure.savefig(partial, dpi=100, metadata={"Software": None})
        pyplot().close(figure)
    for name, text in texts.items():
        write_text(out / name, text)
    return [out / name for name in (*figures, *texts)]


def compose(
    groups: Sequence[Group], out: Path, maps: Path | None = None, paper: bool = False, notes: str = ""
) -> tuple[dict[str, str], dict[str, Callable[[], Figure]]]:
    """Return what :func:`render` writes: the content of every text by its path, and a function that draws each figure.

    Args:
        groups: All results.
        out: Folder that will be written into: the page shows pictures of segmentations that are there already.
        maps: Folder of slices.
        paper: Print the paper's values beside ours, and say how ours differ.
        notes: Text written by hand, placed after the first tables.
    """
    alike: dict[tuple[str, str], list[Group]] = {}
    for group in groups:
        if group.methods:
            alike.setdefault((group.backbone, group.objective), []).append(group)
    main = [table for same in alike.values() for table in (main_table(same, paper), *map(fair_table, same))]
    drawn: dict[str, Callable[[], Figure]] = {}
    sections: list[dict[str, Any]] = []
    for group in groups:
        figures = [*drawings(group), *(draw_maps(group, maps) if maps is not None else ())]
        drawn |= {f"{IMAGES}/{name}.png": draw for name, _, draw in figures}
        captions = {f"{IMAGES}/{name}.png": what for name, what, _ in figures}
        if (out / (kept := f"{IMAGES}/maps-{group.name}.png")).exists():
            captions[kept] = MAPS
        sections.append({"group": group, "tables": list(tables(group)), "figures": captions})
    texts = {
        f"{TABLES}/{table.name}.{ending}": text
        for table in [*main, *(table for section in sections for table in section["tables"])]
        for ending, text in (
            ("md", f"{table.caption}\n\n{table.markdown()}"), ("tex", table.latex()), ("csv", table.csv()),
        )
    }  # fmt: skip
    results = [result for group in groups for result in group.results]
    machines = {
        f"{e['device']}, torch {e['packages'].get('torch', '?')}, Python {e['python']}, crac {e['crac']}"
        for e in (result.environment for result in results)
    }
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True)
    template = environment.from_string(Path(__file__).with_name("benchmark.md.j2").read_text(encoding="utf-8"))
    texts["benchmark.md"] = template.render(
        suites=sorted({result.suite for result in results}),
        main=main,
        sections=sections,
        least=LEAST_PATIENTS,
        rivals=_rivals,
        first_by_rank=_first_by_rank,
        regions=_regions,
        fitted_on=sorted({result.cell.fitted_on for result in results if result.cell.calibrator is not None}),
        split_seeds=", ".join(dict.fromkeys(str(result.settings["split_seed"]) for result in results)),
        thresholds=any(name.startswith(f"{IMAGES}/threshold-") for name in drawn),
        notes=notes.strip(),
        paper=[found for group in groups if (found := _against_paper(group))] if paper else [],
        first=results[0],
        settings={name: _setting(groups, name) for name in results[0].settings if name not in FROM_THE_CELL},
        machines=sorted(machines),
    )
    return texts, drawn


def main_table(groups: Sequence[Group], paper: bool = False) -> Table:
    """Return the paper's table of one backbone, all data sets side by side, on demand with the paper's values."""
    backbone = groups[0].backbone
    longest_first = sorted(groups, key=lambda group: -len(group.methods))
    rows = {method: group.labels[method] for group in longest_first for method in group.methods}
    columns = []
    for group, measure in itertools.product(groups, MAIN):
        column = _column(group, measure._replace(heading=f"{group.label} {measure.heading}"), group.methods)
        columns.append(replace(column, paper=paper_values(group)[measure.key]) if paper else column)
    beside = "; in brackets the paper's value" if paper else ""
    name = "-".join(filter(None, [groups[0].objective, backbone]))
    caption = f"{name}: mean ± standard deviation over seeds{beside}"
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


def tables(group: Group) -> Iterator[Table]:
    """Yield the further tables of a group: by class, by region, other measures, differences, sweeps, costs."""
    title, organs = group.title, group.classes[1:]
    if group.methods:
        measures = [Measure(f"dsc.{name}", f"{name} DSC", 3, True) for name in organs]
        measures += [Measure(f"hd95.{name}", f"{name} HD95", 2) for name in organs]
        measures += [Measure(f"pooled.ece.{name}", f"{name} ECE") for name in organs]
        caption = f"{title}, by class: DSC and HD95 per volume; ECE of the class against the rest, all voxels pooled"
        yield _table(group, "classes", caption, measures)
        caption = f"{title}, by region, all voxels pooled; gap: confidence minus accuracy, above 0 is overconfident"
        yield _table(group, "regions", caption, REGIONS)
        known = ", ".join(f"({name}) {place}" for mask, (name, place) in MASKS.items() if f"ece[{mask}]" in group.runs)
        caption = f"{title}, other measures: of voxels labelled foreground, and {known}"
        yield _table(group, "measures", caption, OTHERS)
    if len(group.methods) > 1:
        many = len(group.methods) > MOST_SHOWN
        yield from (_differences(group, method) for method in (_best(group, group.ours) if many else group.ours))
    if table := _harm(group):
        yield table
    for loss, (option, methods) in group.sweeps.items():
        rows = {
            method: group.labels[method] + ("" if group.of[method][0].cell.sweep else f" {option} {value:g}")
            for value, method in methods.items()
        }
        rows |= {method: group.labels[method] for method in group.ours}
        yield _table(group, f"sweep-{loss}", f"{title}: sensitivity of {loss} to {option}", MAIN, rows)
    seeds = {method: ", ".join(str(result.cell.seed) for result in found) for method, found in group.of.items()}
    rows = {method: group.labels[method] for method in [*group.methods, *group.labels]}
    costs = _table(group, "cost", f"{title}: what each run took", COSTS, rows)
    yield replace(costs, columns=[Column(Measure("seeds", "seeds", 0, None), pandas.Series(seeds)), *costs.columns])


def paper_values(group: Group) -> DataFrame:
    """Return what the paper prints: a row per method of the group that it has, a column per measure."""
    printed = yaml.safe_load(Path(__file__).with_name("paper.yaml").read_text(encoding="utf-8"))
    keys = [measure.key for measure in MAIN]
    table: DataFrame = pandas.DataFrame(columns=keys, dtype=float)
    if group.backbone not in printed["tables"] or group.dataset not in printed["datasets"]:
        return table
    start = len(keys) * printed["datasets"].index(group.dataset)
    table = pandas.DataFrame(printed["tables"][group.backbone]).T.iloc[:, start : start + len(keys)]
    firsts = {method: group.of[method][0] for method in group.methods}
    losses = {method: first.settings["method"] for method, first in firsts.items() if first.cell.as_trained}
    known = {method: loss for method, loss in losses.items() if loss in table.index}
    return table.loc[list(known.values())].set_axis(list(known)).set_axis(keys, axis=1)


def _column(group: Group, measure: Measure, rows: Iterable[str]) -> Column:
    numbers = group.over_seeds(measure.key).loc[list(rows)]
    return Column(measure, numbers["mean"], numbers["std"])


def _table(
    group: Group, name: str, caption: str, measures: Sequence[Measure], rows: Mapping[str, str] | None = None
) -> Table:
    """A table of the measures that the results have, by default of all methods but the values of sweeps."""
    rows = rows or {method: group.labels[method] for method in group.methods}
    columns = [_column(group, measure, rows) for measure in measures if measure.key in group.runs]
    return Table(f"{name}-{group.name}", caption, rows, columns)


def _differences(group: Group, method: str) -> Table:
    """One of our methods against every rival: difference, 95 % interval, and what it means."""
    rivals = {rival: group.labels[rival] for rival in group.methods if rival != method}
    columns = []
    for measure in (*MAIN, *_on_band(group)):
        found = {rival: group.difference(method, rival, measure) for rival in rivals}
        texts = {rival: f"{one.interval} {one.verdict}".strip() for rival, one in found.items() if one is not None}
        columns.append(Column(measure._replace(higher=None), pandas.Series(texts, dtype=object)))
    number = group.volumes["patient"].nunique()
    over = f"a paired bootstrap over the {number} test patients; better, worse: it leaves out 0"
    caption = f"{group.title}: {group.labels[method]} minus each rival, means over seeds" + (
        f"; {too_few(number)}" if number < LEAST_PATIENTS else f", with the 95 % interval of {over}"
    )
    return Table(f"bootstrap-{method}-{group.name}", caption, rivals, columns, "against")


def _on_band(group: Group) -> list[Measure]:
    """The fair measures that differences are shown of."""
    name = MASKS[group.fair_mask][0]
    return [one._replace(heading=f"{one.heading}, {name}") for one in (group.fair[0], group.fair[2])]


def _best(group: Group, methods: Sequence[str]) -> list[str]:
    """The one of some methods with the best Friedman rank among all; none where there is no rank."""
    ranked = main_table([group]).columns[-2].values.reindex(list(methods)).dropna()
    return [str(ranked.idxmin())] if len(ranked) else []


def _first_by_rank(group: Group) -> dict[str, Any] | None:
    """The first by Friedman rank, and who is significantly better than it where no voxel is left out."""
    enough = len(group.methods) > 2 and group.volumes["patient"].nunique() >= LEAST_PATIENTS
    for first in _best(group, group.methods) if enough else ():
        better = {
            measure.heading: [
                group.labels[rival]
                for rival in group.methods
                if rival != first and (one := group.difference(rival, first, measure)) and one.verdict == "better"
            ]
            for measure in _on_band(group)
        }
        return {"label": group.labels[first], "better": better}
    return None


def _harm(group: Group) -> Table | None:
    """CRaC with the preset ``signed`` minus the loss without it, both used in the same way; None without such rows."""
    firsts = {method: group.of[method][0] for method in group.methods}
    plain = {(r.cell.calibrator, r.cell.mirror): m for m, r in firsts.items() if r.settings["method"] == "ce"}
    pairs = {
        method: plain[way]
        for method, result in firsts.items()
        if result.settings["method_options"].get("preset") == "signed"
        and (way := (result.cell.calibrator, result.cell.mirror)) in plain
    }
    if not pairs:
        return None
    columns = []
    for measure in (*MAIN, *_on_band(group)):
        found = {method: group.difference(method, rival, measure) for method, rival in pairs.items()}
        texts = {method: f"{one.interval} {one.verdict}".strip() for method, one in found.items() if one is not None}
        columns.append(Column(measure._replace(higher=None), pandas.Series(texts, dtype=object)))
    caption = f"{group.title}: CRaC (signed) minus the same loss without it, used in the same way; intervals as above"
    return Table(f"harm-{group.name}", caption, {method: group.labels[method] for method in pairs}, columns)


def _rivals(group: Group) -> Iterator[tuple[str, str, list[Difference]]]:
    """Each of our methods against NACL and against temperature scaling, where the tables are short."""
    if len(group.methods) > MOST_SHOWN:
        return
    for method, rival in itertools.product(group.ours, group.rivals):
        if found := [one for measure in MAIN if (one := group.difference(method, rival, measure)) is not None]:
            yield group.labels[method], group.labels[rival], found


def _regions(group: Group) -> Iterator[dict[str, Any]]:
    """Inside organs and on boundaries, which methods are overconfident, who is closest to calibrated, and ours."""
    for measure, (region, where) in zip(REGIONS[2:], WHERE.items(), strict=True):
        column = _column(group, measure, group.methods)
        if len(known := column.values.dropna()):
            key = f"gap.{region}[{MASK}]"
            gaps = {method: group.by_patient(key, [method])[method] for method in known.index}
            fewest = min(map(len, gaps.values()))
            over = sum(side_of_zero(patient_mean(own)) > 0 for own in gaps.values())
            claim = f"{over} of {len(known)} methods are overconfident"
            claim = too_few(fewest) if fewest < LEAST_PATIENTS else claim
            best = str(known.abs().idxmin())
            ours = [f"{group.labels[method]} {column.text(method)}" for method in group.ours if method in known]
            smallest = {"best": group.labels[best], "gap": column.text(best)}
            yield {"where": where, "claim": claim, "ours": ours, **smallest}


def _against_paper(group: Group) -> dict[str, Any] | None:
    """How far our numbers lie from the paper's, and whether ours leads NACL as it does there."""
    paper = paper_values(group)
    ours = pandas.DataFrame({measure.key: group.over_seeds(measure.key)["mean"] for measure in MAIN})
    moved = (ours.loc[paper.index] - paper).dropna()

    def shown(*values: Any) -> list[tuple[str, ...]]:
        return [(m.heading, *(m.shown(one[m.key], signed=True) for one in values)) for m in MAIN]

    leads = [
        (group.labels[method], shown(ours.loc[method] - ours.loc["nacl"], paper.loc[method] - paper.loc["nacl"]))
        for method in group.ours
        if {method, "nacl"} <= set(moved.index)
    ]
    spans = shown(moved.min(), moved.max()) if len(moved) else []
    return {"title": group.title, "methods": len(moved), "spans": spans, "leads": leads} if spans else None


def _setting(groups: Sequence[Group], name: str) -> str:
    """A setting: one value where all runs have the same, otherwise those of each group."""
    values = {g.title: ", ".join(dict.fromkeys(str(r.settings.get(name)) for r in g.results)) for g in groups}
    shared = len(set(values.values())) == 1
    return next(iter(values.values())) if shared else "; ".join(f"{title}: {own}" for title, own in values.items())
