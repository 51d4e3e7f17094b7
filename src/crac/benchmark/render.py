"""Tables, figures and the page on disk, from results alone: the same results give the same bytes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from crac.benchmark.content import class_table, cost_table, main_table, mask_table, region_table, sweep_table
from crac.benchmark.figures import drawings
from crac.benchmark.maps import draw_maps, has_maps
from crac.benchmark.page import write_page
from crac.benchmark.result import load_results
from crac.benchmark.scores import Group, group_results
from crac.benchmark.significance import bootstrap_table
from crac.benchmark.tables import Table
from crac.errors import InputError, require
from crac.files import replacing, write_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Report", "compose", "render"]

TABLES, IMAGES = "tables", "images/benchmark"

NOTES = "reading.md"
"""Text by hand beside the results, taken over into the page."""


@dataclass(frozen=True)
class Report:
    """What is to be written.

    Args:
        texts: Path -> content.
        drawings: Path -> how to draw it.
    """

    texts: dict[str, str]
    drawings: dict[str, Callable[[], Figure]]


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
        What was written.
    """
    for package in ("matplotlib", "pandas", "scikit_posthocs"):
        require(package)
    out = Path(out)
    report = compose(results, out, maps, paper)
    try:
        for folder in (out / TABLES, out / IMAGES):
            folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{out} cannot be written: {error.strerror or error}") from error
    for name, draw in report.drawings.items():
        _draw(draw, out / name)
    for name, text in report.texts.items():
        write_text(out / name, text)
    return [out / name for name in (*report.drawings, *report.texts)]


def compose(results: Sequence[str | Path], out: Path, maps: str | Path | None = None, paper: bool = False) -> Report:
    """Everything :func:`render` writes, with its arguments; nothing is drawn yet."""
    groups = group_results(load_results(results))
    backbones = list(dict.fromkeys(group.backbone for group in groups if group.rows))
    main = [main_table([g for g in groups if g.backbone == name and g.rows], paper) for name in backbones]
    tables = {group.name: list(_tables(group)) for group in groups}
    texts = {}
    for table in [*main, *(table for own in tables.values() for table in own)]:
        texts[f"{TABLES}/{table.name}.md"] = f"{table.caption}\n\n{table.markdown()}"
        texts[f"{TABLES}/{table.name}.tex"] = table.latex()
        texts[f"{TABLES}/{table.name}.csv"] = table.csv()
    drawn: dict[str, Callable[[], Figure]] = {}
    figures: dict[str, list[tuple[str, str]]] = {}
    for group in groups:
        shown = {f"{IMAGES}/{name}.png": what for name, what, _ in drawings(group)}
        drawn |= {f"{IMAGES}/{name}.png": draw for name, _, draw in drawings(group)}
        picture = f"{IMAGES}/maps-{group.name}.png"
        if maps is not None and has_maps(group, Path(maps)):
            drawn[picture] = functools.partial(draw_maps, group, Path(maps))
        if picture in drawn or (out / picture).exists():
            shown[picture] = "Best and worst volume of every method: outlines (white: label) and confidence"
        figures[group.name] = list(shown.items())
    notes = [path.read_text(encoding="utf-8") for folder in results if (path := Path(folder) / NOTES).is_file()]
    texts["benchmark.md"] = write_page(groups, main, tables, figures, "\n".join(notes), paper)
    return Report(texts, drawn)


def _tables(group: Group) -> Iterator[Table]:
    if group.rows:
        yield class_table(group)
        yield region_table(group)
        yield mask_table(group)
        for row in group.rows:
            if row.is_crac and len(group.rows) > 1:
                yield bootstrap_table(group, row)
    for method in group.sweeps:
        yield sweep_table(group, method)
    yield cost_table(group)


def _draw(draw: Callable[[], Figure], path: Path) -> None:
    figure = draw()
    with replacing(path) as partial:
        # Without the version of the program in it, the file depends on the picture alone.
        figure.savefig(partial, dpi=100, metadata={"Software": None})
    require("matplotlib.pyplot").close(figure)
