"""The paper's printed tables, which live in ``paper.yaml`` and nowhere else."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import yaml

from crac.benchmark.result import CellResult
from crac.benchmark.scores import MAIN
from crac.benchmark.tables import Number, Table, ranked_table

__all__ = ["paper_rank", "paper_table", "paper_value"]


@functools.cache
def _content() -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("paper.yaml").read_text(encoding="utf-8"))
    return content


def paper_table(backbone: str) -> Table:
    """A printed table, with ranks that are computed as those of ours are."""
    content = _content()
    rows = {
        content["labels"][method]: [
            Number(value, decimals=measure.decimals)
            for value, measure in zip(values[:-1], MAIN * len(content["datasets"]), strict=True)
        ]
        for method, values in content["tables"][backbone].items()
    }
    headings = [f"{name.upper()} {measure.heading}" for name in content["datasets"] for measure in MAIN]
    higher = [measure.higher for measure in MAIN] * len(content["datasets"])
    return ranked_table(f"paper-{backbone}", f"The paper's table, {backbone}", headings, rows, higher)


def paper_rank(backbone: str) -> dict[str, float]:
    """The Friedman ranks as printed, by method."""
    return {method: values[-1] for method, values in _content()["tables"][backbone].items()}


def paper_value(result: CellResult, measure: str) -> float | None:
    """What the paper prints where a result stands, if it has the method, the data set and the backbone.

    Args:
        result: Of the method; temperature scaling and sweeps are not in the tables.
        measure: ``dsc``, ``hd95``, ``ece`` or ``tace``.
    """
    content, cell = _content(), result.cell
    row = content["tables"].get(cell.backbone, {}).get(result.settings["method"])
    if row is None or cell.dataset not in content["datasets"] or cell.tempered or cell.sweep:
        return None
    measures = content["measures"]
    value: float = row[len(measures) * content["datasets"].index(cell.dataset) + measures.index(measure)]
    return value
