"""The result of one cell: a small JSON file that holds everything tables and figures are made of."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crac.benchmark.cell import Cell
from crac.errors import InputError
from crac.files import write_text

__all__ = ["CellResult", "load_results", "plain"]

FORMAT = 1
DIGITS = 7
"""Significant digits kept: more than any table shows, few enough for small files."""


@dataclass(frozen=True)
class CellResult:
    """What came out of a cell.

    Args:
        cell: Which one.
        suite: Suite it was run for.
        dataset: The data set: its label, its cases, how it was prepared.
        classes: Names, the background first.
        settings: Of the training.
        environment: Versions and device.
        seconds: Of ``training`` and ``evaluation``.
        temperature: The logits were divided by it; 1 where none was fitted.
        best_epoch: Whose weights were tested.
        protocol: How the volumes were measured.
        columns: Names of the measures.
        volumes: Name -> its measures, in the order of ``columns``.
        patients: Volume -> whom it shows.
        pooled: Calibration of all voxels together, by mask.
        logits: Histograms of the winning and of the other logits.
        history: Training curves: column -> one value per epoch.
    """

    cell: Cell
    suite: str
    dataset: dict[str, Any]
    classes: list[str]
    settings: dict[str, Any]
    environment: dict[str, Any]
    seconds: dict[str, float]
    temperature: float
    best_epoch: int
    protocol: dict[str, Any]
    columns: list[str]
    volumes: dict[str, list[float]]
    patients: dict[str, str]
    pooled: dict[str, Any]
    logits: dict[str, Any]
    history: dict[str, list[float]]

    def values(self, column: str) -> NDArray[np.float64]:
        """One measure of every volume, in the order of their names."""
        index = self.columns.index(column)
        return np.array([self.volumes[name][index] for name in sorted(self.volumes)], dtype=np.float64)

    def mean(self, column: str) -> float:
        """A measure's mean over the volumes that have it."""
        values = self.values(column)
        known = values[~np.isnan(values)]
        return float(known.mean()) if known.size else math.nan

    def save(self, path: Path) -> None:
        """Write the file, one part a line."""
        path.parent.mkdir(parents=True, exist_ok=True)
        parts = {"format": FORMAT, **asdict(self)}
        lines = [f"{json.dumps(name)}: {json.dumps(plain(value), allow_nan=False)}" for name, value in parts.items()]
        write_text(path, "{\n" + ",\n".join(lines) + "\n}\n")

    @classmethod
    def load(cls, path: Path) -> CellResult:
        """Read a file back."""
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            version = content.pop("format")
            if version > FORMAT:
                raise InputError(f"{path} has result format {version}, this crac reads up to {FORMAT}: upgrade crac")
            cell = Cell(**content.pop("cell"))
            return cls(cell=cell, **_numbers(content))
        except InputError:
            raise
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise InputError(f"{path} is not the result of a benchmark: {error}") from error


def load_results(folders: Iterable[str | Path]) -> list[CellResult]:
    """Every result in some folders, in the order of their cells' names; a cell that occurs twice is refused."""
    found: dict[str, tuple[Path, CellResult]] = {}
    for folder in map(Path, folders):
        if not folder.is_dir():
            raise InputError(f"{folder}: no such folder of results")
        for path in sorted(folder.rglob("*.json")):
            result = CellResult.load(path)
            if result.cell.name in found:
                raise InputError(f"{path} holds the same cell as {found[result.cell.name][0]}")
            found[result.cell.name] = path, result
    if not found:
        raise InputError(f"{', '.join(map(str, folders))}: no results found there")
    return [found[name][1] for name in sorted(found)]


def plain(value: Any) -> Any:
    """Plain data with floats rounded, and None where a number is missing."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None
    return value


def _numbers(content: dict[str, Any]) -> dict[str, Any]:
    """Missing measures as NaN again."""

    def nan(values: list[Any]) -> list[float]:
        return [math.nan if value is None else value for value in values]

    volumes = {name: nan(values) for name, values in content["volumes"].items()}
    history = {name: nan(values) for name, values in content["history"].items()}
    return {**content, "volumes": volumes, "history": history}
