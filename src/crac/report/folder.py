"""An evaluation on disk."""

import csv
import io
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from crac._version import __version__
from crac.errors import InputError
from crac.evaluation import Evaluation
from crac.files import read_json, replacing, write_json, write_text, writing
from crac.metrics.results import CalibrationResult
from crac.palette import pyplot
from crac.report import plots

SUMMARY = "summary.json"
PLOTS: dict[str, Callable[[CalibrationResult, Sequence[str]], Any]] = {
    "reliability": lambda result, _: plots.reliability(result),
    "reliability_classes": plots.reliability_by_class,
    "reliability_regions": lambda result, _: plots.reliability_by_region(result),
    "gap": plots.gaps,
}
"""Name of a picture -> how it is drawn from a mask's result and the names of the classes."""
BEFORE_0_2 = re.compile(r"per_volume\.csv|(reliability|reliability_classes|reliability_regions|gap)\.\w+\.png")
"""What 0.1.0 wrote beside a summary that did not yet list the files."""


def check_folder(folder: Path) -> set[str]:
    """Return the names of the files that an earlier evaluation left in a folder; they may be replaced.

    Raises:
        InputError: The folder is a file, or holds what no evaluation has written.
    """
    if folder.exists() and not folder.is_dir():
        raise InputError(f"--out must be a folder or not exist yet; {folder} is a file")
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    names = {name for name in names if not name.startswith(".")}
    own: set[str] = set()
    if SUMMARY in names:
        summary = read_json(folder / SUMMARY)
        if isinstance(summary, dict) and "crac" in summary:
            listed = summary.get("files")
            own = names & {
                SUMMARY,
                *(map(str, listed) if isinstance(listed, list) else filter(BEFORE_0_2.fullmatch, names)),
            }
    if foreign := sorted(names - own):
        more = f" and {len(foreign) - 3} more" if len(foreign) > 3 else ""
        raise InputError(
            f"--out must be a new folder or one that crac evaluate wrote; {folder} holds {', '.join(foreign[:3])}{more}"
        )
    return own


def write_report(evaluation: Evaluation, folder: Path, source: dict[str, str] | None = None) -> list[Path]:
    """Write ``per_volume.csv``, ``summary.json`` and the plots, in the place of what an earlier evaluation left.

    Where the model's guarantees were measured, ``guarantees.csv`` has a row for each volume and class.

    Args:
        evaluation: What was measured.
        folder: Where to; made if it does not exist.
        source: What was measured on, repeated in the summary.

    Returns:
        The files written.
    """
    before = check_folder(folder)
    tables = {"per_volume.csv": evaluation.rows}
    if evaluation.realised is not None:
        tables["guarantees.csv"] = evaluation.realised.rows
    drawn = {mask: result for mask, result in evaluation.pooled().items() if result.count}
    files = [*tables, SUMMARY, *(f"{plot}.{mask}.png" for mask in drawn for plot in PLOTS)]
    about = {"crac": __version__} | ({"source": source} if source else {})
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        # Until all is written the summary says so, and which files are ours.
        write_json(folder / SUMMARY, about | {"unfinished": True, "files": sorted(before.union(files))})
        for name in before - {SUMMARY}:
            (folder / name).unlink(missing_ok=True)
    for name, rows in tables.items():
        write_text(folder / name, _csv(rows))
    for mask, result in drawn.items():
        for plot, draw in PLOTS.items():
            figure = draw(result, list(evaluation.protocol.class_names))
            with replacing(folder / f"{plot}.{mask}.png") as partial:
                figure.savefig(partial, dpi=100)
            pyplot().close(figure)
    write_json(folder / SUMMARY, about | {"files": files} | evaluation.summary())
    return [folder / name for name in files]


def _csv(rows: Sequence[dict[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
