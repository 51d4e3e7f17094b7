"""Tables, figures and the page on disk, from results alone: the same results give the same bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from crac.benchmark.content import class_table, cost_table, main_table, mask_table, region_table, sweep_table
from crac.benchmark.figures import Drawing, drawings
from crac.benchmark.maps import draw_maps, has_maps
from crac.benchmark.page import write_page
from crac.benchmark.result import load_results
from crac.benchmark.scores import Group, group_results
from crac.benchmark.significance import bootstrap_table
from crac.benchmark.tables import Table
from crac.data.files import write_text
from crac.errors import InputError, require

__all__ = ["render"]

NOTES = "reading.md"
"""Text by hand beside the results, taken over into the page."""


def render(
    results: Sequence[str | Path], out: str | Path, maps: str | Path | None = None, paper: bool = False
) -> list[Path]:
    """Write ``benchmark.md``, ``tables/`` (Markdown, LaTeX, CSV) and ``images/benchmark/``.

    Args:
        results: Folders of result files.
        out: Folder to write into.
        maps: Folder of slices, for the pictures of segmentations.
        paper: Print the paper's values beside ours.

    Returns:
        What was written.
    """
    for package in ("matplotlib", "pandas", "scikit_posthocs"):
        require(package)
    groups = group_results(load_results(results))
    out = Path(out)
    try:
        (out / "tables").mkdir(parents=True, exist_ok=True)
        (out / "images" / "benchmark").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{out} cannot be written: {error.strerror or error}") from error
    backbones = list(dict.fromkeys(group.backbone for group in groups if group.rows))
    main = [main_table([g for g in groups if g.backbone == name and g.rows], paper) for name in backbones]
    tables = {group.name: list(_tables(group)) for group in groups}
    written = [path for table in [*main, *(t for own in tables.values() for t in own)] for path in _write(table, out)]
    figures: dict[str, list[tuple[str, str]]] = {}
    for group in groups:
        figures[group.name] = []
        for drawing in _drawings(group, None if maps is None else Path(maps)):
            path = _draw(drawing, out)
            figures[group.name].append((path.relative_to(out).as_posix(), drawing[1]))
            written.append(path)
    notes = "\n".join(path.read_text(encoding="utf-8") for path in _notes(results))
    write_text(out / "benchmark.md", write_page(groups, main, tables, figures, notes, paper))
    return [*written, out / "benchmark.md"]


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


def _drawings(group: Group, maps: Path | None) -> Iterator[Drawing]:
    yield from drawings(group)
    if maps is not None and has_maps(group, maps):
        what = "Best and worst volume of every method: outlines (white: label) and confidence"
        yield f"maps-{group.name}", what, lambda: draw_maps(group, maps)


def _write(table: Table, out: Path) -> list[Path]:
    forms = {"md": f"{table.caption}\n\n{table.markdown()}", "tex": table.latex(), "csv": table.csv()}
    paths = []
    for ending, text in forms.items():
        paths.append(out / "tables" / f"{table.name}.{ending}")
        write_text(paths[-1], text)
    return paths


def _draw(drawing: Drawing, out: Path) -> Path:
    name, _, draw = drawing
    figure = draw()
    path = out / "images" / "benchmark" / f"{name}.png"
    partial = path.with_name(f".{path.name}.partial")
    # Without the version of the program in it, the file depends on the picture alone.
    figure.savefig(partial, format="png", dpi=100, metadata={"Software": None})
    partial.replace(path)
    require("matplotlib.pyplot").close(figure)
    return path


def _notes(results: Sequence[str | Path]) -> list[Path]:
    return [path for folder in results if (path := Path(folder) / NOTES).is_file()]
