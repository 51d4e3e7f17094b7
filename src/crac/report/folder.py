"""An evaluation on disk."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from crac.errors import InputError
from crac.evaluation import Evaluation
from crac.evaluation.views import CASES, save_views
from crac.files import check_writable, read_json, remove_partials, write_json, write_rows, writing
from crac.report.page import render, write_page
from crac.report.result import PROMISED, ROWS, SUMMARY, Result

PAGE = "report.html"
UNNAMED = "model {}"
"""What a page without names calls a result in the place of the name of its folder."""
BEFORE_0_2 = re.compile(r"per_volume\.csv|(reliability|reliability_classes|reliability_regions|gap)\.\w+\.png")
"""What 0.1.0 wrote beside a summary that did not yet list the files."""


def check_folder(folder: Path) -> set[str]:
    """Return the names of the files that an earlier evaluation left in a folder; they may be replaced.

    Raises:
        InputError: The folder is a file, holds what no evaluation has written, or cannot be written to.
    """
    if folder.exists() and not folder.is_dir():
        raise InputError(f"--out must be a folder or not exist yet; {folder} is a file")
    check_writable(folder)
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


def write_report(
    evaluation: Evaluation, folder: Path, source: dict[str, str] | None = None, *, anonymous: bool = False, **about: Any
) -> list[Path]:
    """Write the rows, the summary, slices of cases and the page, in the place of what an earlier evaluation left.

    Where the model's guarantees were measured, ``guarantees.csv`` has a row for each volume and class.

    Args:
        evaluation: What was measured.
        folder: Folder to write into; made if it does not exist.
        source: What was measured on, repeated in the summary.
        anonymous: Write no slices, and leave names and paths out of the page.
        **about: More about what was measured, for the summary: ``model``, ``calibration``.

    Returns:
        The files written: ``per_volume.csv``, ``summary.json``, ``cases.npz`` if cases were looked at, and
        ``report.html`` if there are voxels to measure calibration on.
    """
    before = check_folder(folder)
    tables = {ROWS: evaluation.rows}
    if evaluation.realised is not None:
        tables[PROMISED] = evaluation.realised.rows
    about |= {"source": source} if source else {}
    result = Result.of(evaluation, UNNAMED.format(1) if anonymous else folder.resolve().name, **about)
    views = [] if anonymous else evaluation.views
    files = [*tables, SUMMARY, *([CASES] if views else []), *([PAGE] if result.masks else [])]
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        remove_partials(folder)
        # Until all is written the summary says so, and which files are ours.
        unfinished = {"crac": result.summary["crac"], "unfinished": True, "files": sorted(before.union(files))}
        write_json(folder / SUMMARY, unfinished)
        for name in before - {SUMMARY}:
            (folder / name).unlink(missing_ok=True)
    for name, rows in tables.items():
        write_rows(folder / name, rows)
    if views:
        save_views(views, folder / CASES)
    if result.masks:
        write_page(folder / PAGE, [result], anonymous=anonymous)
    write_json(folder / SUMMARY, {"files": files, **result.summary})
    return [folder / name for name in files]


def page_of(folders: Sequence[Path], names: Sequence[str], **options: Any) -> str:
    """Return the page of folders that ``crac evaluate`` wrote; ``names`` is what the page calls them.

    An empty name stands for that of the folder, or for a number where ``options`` leave out names.

    Raises:
        InputError: A folder holds something else.
    """
    if options.get("anonymous"):
        names = [name or UNNAMED.format(number) for number, name in enumerate(names, start=1)]
    results = [Result.read(folder, name) for folder, name in zip(folders, names, strict=True)]
    try:
        return render(results, **options)
    except InputError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RuntimeError) as error:
        named = " or ".join(map(str, folders))
        raise InputError(f"{named} does not hold the results of crac evaluate: {error!r}") from error
