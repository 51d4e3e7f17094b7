"""An evaluation on disk and on the terminal."""

from __future__ import annotations

import contextlib
import csv
import json
import math
import shutil
import tempfile
from pathlib import Path
from typing import Any

from crac._version import __version__
from crac.errors import InputError, require
from crac.evaluation.protocol import BY_REGION, CALIBRATION, SEGMENTATION, Evaluation
from crac.metrics.results import REGION_NAMES
from crac.report import plots

__all__ = ["print_table", "table", "write_report"]


def write_report(evaluation: Evaluation, folder: Path, source: dict[str, str] | None = None) -> list[Path]:
    """Write ``per_volume.csv``, ``summary.json`` and the plots.

    Everything is first written beside the folder, so that a failure leaves it as it was.

    Args:
        evaluation: What was measured.
        folder: Where to; made if it does not exist.
        source: What was measured on, repeated in the summary.

    Returns:
        The files written.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    except OSError as error:
        raise InputError(f"{folder} cannot be written: {error.strerror or error}") from error
    try:
        _write_rows(evaluation, work / "per_volume.csv")
        summary = {"crac": __version__} | ({"source": source} if source else {}) | evaluation.summary()
        (work / "summary.json").write_text(json.dumps(finite(summary), indent=2) + "\n", encoding="utf-8")
        _write_plots(evaluation, work)
        folder.mkdir(exist_ok=True)
        written = [path.replace(folder / path.name) for path in sorted(work.iterdir())]
    except OSError as error:
        raise InputError(f"{folder} cannot be written: {error.strerror or error}") from error
    finally:
        with contextlib.suppress(OSError):
            shutil.rmtree(work)
    return written


def finite(value: Any) -> Any:
    """Plain data with None in the place of numbers that JSON does not know."""
    if isinstance(value, dict):
        return {key: finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _write_rows(evaluation: Evaluation, path: Path) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=list(evaluation.rows[0]))
        writer.writeheader()
        writer.writerows(evaluation.rows)


def _write_plots(evaluation: Evaluation, folder: Path) -> None:
    names = list(evaluation.protocol.class_names)
    for mask, result in evaluation.pooled().items():
        if not result.count:
            continue
        figures = {
            "reliability": plots.reliability(result),
            "reliability_classes": plots.reliability_by_class(result, names),
            "reliability_regions": plots.reliability_by_region(result),
            "gap": plots.gaps(result, names),
        }
        for name, figure in figures.items():
            figure.savefig(folder / f"{name}.{mask}.png", dpi=100)
            require("matplotlib.pyplot").close(figure)


def table(evaluation: Evaluation) -> list[tuple[str, str, str, str]]:
    """Lines ``(measure, mean over volumes, standard deviation, pooled)`` in the order they are read."""
    means, pooled = evaluation.per_volume(), evaluation.pooled()
    protocol = evaluation.protocol
    units = {"hd95": f" ({protocol.unit}, {protocol.hd95})", "asd": f" ({protocol.unit})"}
    units["surface_dice"] = f" (at {protocol.tolerance:g} {protocol.unit})"
    lines = [(metric + units.get(metric, ""), means[metric], math.nan) for metric in SEGMENTATION]
    lines += [
        (f"{m} {name}", means[f"{m}.{name}"], math.nan) for m in ("dsc", "hd95") for name in protocol.class_names[1:]
    ]
    for mask, result in pooled.items():
        lines += [(f"{m} [{mask}]", means[f"{m}[{mask}]"], getattr(result, m)) for m in CALIBRATION]
        lines += [
            (f"{m} {region} [{mask}]", means[f"{m}.{region}[{mask}]"], getattr(result.by_region[region], m))
            for region in REGION_NAMES
            for m in BY_REGION
        ]
    return [(name, _number(one["mean"]), _number(one["sd"]), _number(whole)) for name, one, whole in lines]


def print_table(evaluation: Evaluation) -> None:
    """Show the table on the terminal."""
    protocol = evaluation.protocol
    console = require("rich.console").Console(highlight=False)
    shown = require("rich.table").Table(
        title=f"{len(evaluation.rows)} volumes, {protocol.bins} bins", title_justify="left"
    )
    for heading, justify in (("measure [mask]", "left"), ("per volume", "right"), ("sd", "right"), ("pooled", "right")):
        shown.add_column(require("rich.text").Text(heading), justify=justify)
    previous = ""
    for line in table(evaluation):
        mask = line[0].rpartition(" [")[2] if " [" in line[0] else ""
        if mask != previous:
            shown.add_section()
        previous = mask
        shown.add_row(*(require("rich.text").Text(part) for part in line))
    console.print(shown)
    console.print(
        f"distances where a class is absent: {protocol.empty}; gap: confidence - accuracy, above 0 is overconfident",
        markup=False,
    )


def _number(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.4f}"
