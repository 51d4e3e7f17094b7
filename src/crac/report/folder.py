"""An evaluation on disk."""

import csv
import io
from pathlib import Path

from crac._version import __version__
from crac.evaluation import Evaluation
from crac.files import replacing, write_json, write_text, writing
from crac.palette import pyplot
from crac.report import plots


def write_report(evaluation: Evaluation, folder: Path, source: dict[str, str] | None = None) -> list[Path]:
    """Write ``per_volume.csv``, ``summary.json`` and the plots.

    Args:
        evaluation: What was measured.
        folder: Where to; made if it does not exist.
        source: What was measured on, repeated in the summary.

    Returns:
        The files written.
    """
    rows = io.StringIO()
    writer = csv.DictWriter(rows, fieldnames=list(evaluation.rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(evaluation.rows)
    summary = {"crac": __version__} | ({"source": source} if source else {}) | evaluation.summary()
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / "per_volume.csv", rows.getvalue())
    write_json(folder / "summary.json", summary)
    return [folder / "per_volume.csv", folder / "summary.json", *_write_plots(evaluation, folder)]


def _write_plots(evaluation: Evaluation, folder: Path) -> list[Path]:
    names, written = list(evaluation.protocol.class_names), []
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
            written.append(folder / f"{name}.{mask}.png")
            with replacing(written[-1]) as partial:
                figure.savefig(partial, dpi=100)
            pyplot().close(figure)
    return written
