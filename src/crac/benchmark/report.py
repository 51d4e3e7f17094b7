"""Tables, figures and the pages of a benchmark, from results alone: the same results give the same bytes."""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from crac.benchmark import reading
from crac.benchmark.figures import MAPS, draw_maps, drawings, glances
from crac.benchmark.results import Group, group_results, load_results
from crac.benchmark.suite import FROM_THE_CELL
from crac.benchmark.tables import fair_table, main_table, objective_tables, tables
from crac.errors import require
from crac.files import write_text, writing
from crac.metrics.claims import LEAST_PATIENTS, too_few
from crac.palette import pyplot
from crac.report import words
from crac.report.comparison import Table
from crac.report.frame import fill, svg_uri, to_html

jinja2 = require("jinja2")
require("scikit_posthocs")

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TABLES, IMAGES = "tables", "images/benchmark"
PAGE, TEXT = "benchmark.html", "benchmark.md"
"""The page for people, and the same in Markdown, for a repository."""

SUMMARY, NOTES = "summary.md", "reading.md"
"""Text written by hand beside the results, which becomes part of the pages: at their top, and after the reading."""

PROSE = ("introduction", "measures", "against_the_paper", "threshold", "protocol")
"""Passages that both pages have."""

AS_OTHERS = ("temperature", "all")
"""A temperature as others fit it: over all voxels, volumes weighing by their size."""


class Section(NamedTuple):
    """What the pages show of one group: a reading in Markdown, tables, and the path and caption of each figure."""

    group: Group
    reading: str
    tables: Sequence[Table]
    figures: Mapping[str, str]


@dataclass(frozen=True)
class Content:
    """What both pages say.

    Args:
        title: Their heading.
        suites: Names of the suites.
        groups: All results.
        glance: Path and caption of the first figures.
        main: The first tables.
        sections: One per group.
        prose: Name of a passage -> Markdown.
        summary: Text written by hand that comes first, in Markdown.
        notes: Text written by hand that comes after the reading.
        drawn: Path of a figure -> a function that draws it.
    """

    title: str
    suites: Sequence[str]
    groups: Sequence[Group]
    glance: Mapping[str, str]
    main: Sequence[Table]
    sections: Sequence[Section]
    prose: Mapping[str, str]
    summary: str
    notes: str
    drawn: Mapping[str, Callable[[], Figure]]

    def markdown(self) -> str:
        """Return the page in Markdown."""
        text: str = _templates().get_template("benchmark.md.j2").render(vars(self))
        return text

    def html(self, pictures: Mapping[str, str]) -> str:
        """Return the page in HTML, in the frame that every page has; ``pictures`` holds the SVG of each figure."""
        groups = self.groups
        few = {group.title: number for group in groups if (number := reading.patients(group)) < LEAST_PATIENTS}
        return fill(
            "benchmark.html.j2",
            title=self.title,
            kicker=f"Benchmark · {', '.join(self.suites)}",
            about="; ".join(map(reading.about, groups)) + ".",
            verdict=reading.verdict(groups),
            numbers=reading.numbers(groups),
            several=True,
            no_intervals=" ".join(
                f"No interval is given of {name}: {too_few(number)}." for name, number in few.items()
            ),
            contents=[
                ("tables", "Tables"),
                ("reading", "Reading"),
                *((f"group-{number}", section.group.title) for number, section in enumerate(self.sections)),
                ("print", "Small print"),
            ],
            data={"views": [], "colours": []},
            glance=self.glance,
            main=self.main,
            sections=[section._replace(reading=to_html(section.reading)) for section in self.sections],
            prose={name: to_html(text) for name, text in self.prose.items()},
            summary=to_html(self.summary),
            notes=to_html(self.notes),
            pictures={path: svg_uri(text) for path, text in pictures.items()},
            photos=[path for section in self.sections for path, what in section.figures.items() if what == MAPS],
            sources=_sources(groups),
            limits=words.LIMITS,
        )

    def tables(self) -> dict[str, str]:
        """Return every table in three formats, by its path."""
        return {
            f"{TABLES}/{table.name}.{ending}": text
            for table in [*self.main, *(table for section in self.sections for table in section.tables)]
            for ending, text in (
                ("md", f"{table.caption}\n\n{table.markdown()}"), ("tex", table.latex()), ("csv", table.csv()),
            )
        }  # fmt: skip


def render(
    results: Sequence[str | Path],
    out: str | Path,
    maps: str | Path | None = None,
    paper: bool = False,
    anonymous: bool = False,
) -> list[Path]:
    """Write ``benchmark.html``, the same as ``benchmark.md``, ``tables/`` and ``images/benchmark/``.

    Args:
        results: Folders of result files.
        out: Folder to write into.
        maps: Folder of slices, for the pictures of segmentations; those already in ``out`` stay.
        paper: Print the paper's values beside ours.
        anonymous: Show no pictures of segmentations, which name their volumes.

    Returns:
        The files that were written.
    """
    out, groups = Path(out), group_results(load_results(results))
    summary, notes = (_written(results, name) for name in (SUMMARY, NOTES))
    slices = None if maps is None or anonymous else Path(maps)
    content = compose(groups, slices, paper, summary, notes, None if anonymous else out)
    pictures = {path: _drawn(draw) for path, draw in content.drawn.items()}
    kept = [path for section in content.sections for path in section.figures if path not in pictures]
    shown = pictures | {path: (out / path).read_text(encoding="utf-8") for path in kept}
    texts = {PAGE: content.html(shown), TEXT: content.markdown(), **content.tables(), **pictures}
    with writing(out):
        for folder in (out / TABLES, out / IMAGES):
            folder.mkdir(parents=True, exist_ok=True)
        for group in groups if anonymous else ():  # an earlier report has left its pictures
            (out / _path(f"maps-{group.name}")).unlink(missing_ok=True)
    for name, text in texts.items():
        write_text(out / name, text)
    return [out / name for name in texts]


def _written(results: Sequence[str | Path], name: str) -> str:
    """Return what was written by hand beside results."""
    found = (Path(folder) / name for folder in results)
    return "\n".join(path.read_text(encoding="utf-8").strip() for path in found if path.is_file())


def compose(
    groups: Sequence[Group],
    maps: Path | None = None,
    paper: bool = False,
    summary: str = "",
    notes: str = "",
    kept: Path | None = None,
) -> Content:
    """Return what the pages say.

    Args:
        groups: All results.
        maps: Folder of slices.
        paper: Print the paper's values beside ours, and say how ours differ.
        summary: Text written by hand, placed first; a first line ``# ...`` is the heading of the page.
        notes: Text written by hand, placed after the reading.
        kept: Folder of an earlier report, whose pictures of segmentations are shown again.
    """
    alike: dict[tuple[str, str], list[Group]] = {}
    for group in groups:
        if group.methods:
            alike.setdefault((group.backbone, group.objective), []).append(group)
    results = [result for group in groups for result in group.results]
    machines = {
        f"{e['device']}, torch {e['packages'].get('torch', '?')}, Python {e['python']}, crac {e['crac']}"
        for e in (result.environment for result in results)
    }
    found = {group.name: [*drawings(group), *(draw_maps(group, maps) if maps else ())] for group in groups}
    suites = sorted({result.suite for result in results})
    fits = {(r.cell.calibrator, r.cell.fitted_on) for r in results if r.cell.calibrator is not None}
    prose = _templates().get_template("prose.md.j2").make_module({
        "suites": suites,
        "groups": groups,
        "least": LEAST_PATIENTS,
        "rivals": reading.rivals,
        "incomplete": reading.incomplete,
        "first_by_rank": reading.first_by_rank,
        "regions": reading.regions,
        "temperature": AS_OTHERS in fits,
        "fitted_on": sorted({mask for name, mask in fits if (name, mask) != AS_OTHERS}),
        "vector": any(name == "vector" for name, _ in fits),
        "places": words.MASKS,
        "split_seeds": ", ".join(dict.fromkeys(str(result.settings["split_seed"]) for result in results)),
        "thresholds": any(name.startswith("threshold-") for own in found.values() for name, _, _ in own),
        "paper": [one for group in groups if (one := reading.against_paper(group))] if paper else [],
        "first": results[0],
        "settings": {name: _setting(groups, name) for name in results[0].settings if name not in FROM_THE_CELL},
        "machines": sorted(machines),
    })  # fmt: skip
    first = list(glances(groups))
    main = [table for same in alike.values() for table in (main_table(same, paper), *map(fair_table, same))]
    sections = []
    for group in groups:
        captions = {_path(name): what for name, what, _ in found[group.name]}
        if kept is not None and (kept / (path := _path(f"maps-{group.name}"))).exists():
            captions[path] = MAPS
        sections.append(Section(group, prose.reading(group) if group.methods else "", list(tables(group)), captions))
    heading = re.match(r"# (.+)\n*", summary)
    return Content(
        heading[1] if heading else "How the methods compare",
        suites,
        groups,
        {_path(name): what for name, what, _ in first},
        [*main, *objective_tables(groups)],
        sections,
        {name: getattr(prose, name)() for name in PROSE},
        summary[heading.end() :] if heading else summary,
        notes,
        {_path(name): draw for own in (first, *found.values()) for name, _, draw in own},
    )


def _sources(groups: Sequence[Group]) -> list[tuple[str, str]]:
    """Hashes of the data and of the results, and the versions of every package that took part."""
    results = [result for group in groups for result in group.results]
    stores: dict[str, dict[str, None]] = {}
    for result in results:
        of_data = stores.setdefault(f"data, {result.dataset['label']}", {})
        of_data[result.dataset.get("manifest_sha256", "-")] = None
    found = {label: ", ".join(hashes) for label, hashes in stores.items()}
    numbers = repr([(result.cell.name, sorted(result.volumes.items())) for result in results])
    found[f"measures of {len(results)} runs"] = hashlib.sha256(numbers.encode()).hexdigest()
    versions: dict[str, dict[str, None]] = {}
    for result in results:
        for name, version in result.environment["packages"].items():
            versions.setdefault(name, {})[version] = None
    return [*found.items(), *((name, ", ".join(known)) for name, known in sorted(versions.items()))]


def _path(name: str) -> str:
    return f"{IMAGES}/{name}.svg"


def _drawn(draw: Callable[[], Figure]) -> str:
    """Return a figure as SVG; without date and random names it depends on the picture alone."""
    plt, text, figure = pyplot(), io.StringIO(), draw()
    with plt.rc_context({"svg.hashsalt": "crac"}):
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    plt.close(figure)
    return text.getvalue()


def _templates() -> Any:
    folder = Path(__file__).with_name("templates")
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder), trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )


def _setting(groups: Sequence[Group], name: str) -> str:
    """A setting: one value where all runs have the same, otherwise those of each group."""
    values = {g.title: ", ".join(dict.fromkeys(str(r.settings.get(name)) for r in g.results)) for g in groups}
    shared = len(set(values.values())) == 1
    return next(iter(values.values())) if shared else "; ".join(f"{title}: {own}" for title, own in values.items())
