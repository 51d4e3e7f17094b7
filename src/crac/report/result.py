"""What a page is made of: the numbers, the rows and the slices of one evaluation."""

from __future__ import annotations

import csv
import io
import math
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from crac._version import __version__
from crac.errors import InputError
from crac.evaluation import Evaluation
from crac.evaluation.case import View
from crac.evaluation.views import CASES, load_views
from crac.files import finite, read_json
from crac.metrics.claims import by_patient, patient_difference
from crac.report.measure import Difference, Measure

SUMMARY, ROWS, PROMISED = "summary.json", "per_volume.csv", "guarantees.csv"
NAMES = ("volume", "patient", "class")
SAME = ("class_names", "bins", "threshold", "hd95", "empty", "tolerance", "unit", "grid", "regions", "band")
"""Settings that must agree where results are compared."""


@dataclass(frozen=True)
class Result:
    """One evaluation, from a folder or from memory.

    Args:
        label: How the page calls it.
        summary: Content of ``summary.json``.
        rows: One per volume: names as text, measures as numbers.
        views: Cases to look at.
        promised: What came of guarantees, one per volume and class.
    """

    label: str
    summary: Mapping[str, Any]
    rows: Sequence[Mapping[str, Any]]
    views: Sequence[View] = field(default=(), repr=False)
    promised: Sequence[Mapping[str, Any]] = field(default=(), repr=False)

    @classmethod
    def of(cls, evaluation: Evaluation, label: str, **about: Any) -> Result:
        """The result of an evaluation in memory; ``about`` becomes part of its summary."""
        versions = {"python": platform.python_version(), "torch": version("torch"), "numpy": version("numpy")}
        summary = {"crac": __version__} | about | {"versions": versions} | evaluation.summary()
        promised = [] if evaluation.realised is None else evaluation.realised.rows
        return cls(label, finite(summary), [dict(row) for row in evaluation.rows], evaluation.views, promised)

    @classmethod
    def read(cls, folder: Path, label: str = "") -> Result:
        """The result in a folder that ``crac evaluate`` wrote."""
        if not (folder / SUMMARY).is_file() or not (folder / ROWS).is_file():
            raise InputError(f"{folder} must be a folder written by crac evaluate; it has no {SUMMARY} with {ROWS}")
        summary = read_json(folder / SUMMARY)
        try:
            missing = {"settings", "patients", "volumes", "per_volume", "pooled"} - set(summary)
            if missing:
                raise ValueError(f"it lacks {', '.join(sorted(missing))}")
            if "over_patients" not in summary:
                raise ValueError("an earlier version wrote it; run crac evaluate again")
            rows = _read_rows(folder / ROWS)
            promised = _read_rows(folder / PROMISED) if (folder / PROMISED).is_file() else []
        except (OSError, TypeError, ValueError) as error:
            raise InputError(f"{folder} does not hold the results of crac evaluate: {error}") from error
        return cls(label or folder.resolve().name, summary, rows, load_views(folder / CASES), promised)

    @property
    def classes(self) -> list[str]:
        """Names of the classes, the background first."""
        return list(self.summary["settings"]["class_names"])

    @property
    def masks(self) -> list[str]:
        """Masks that hold voxels, the main one first."""
        return [mask for mask in self.summary["settings"]["masks"] if self.summary["pooled"][mask]["count"]]

    @property
    def patients(self) -> int:
        """Number of patients."""
        return int(self.summary["patients"])

    def by_patient(self, column: str) -> dict[str, float]:
        """Mean of a column over each patient's volumes that have a value; NaN where none has."""
        return by_patient(self.rows, column)

    def over_patients(self, column: str) -> tuple[float, float, float]:
        """Mean over patients and its interval; NaN what is not known."""
        found = self.summary["over_patients"].get(column, {})
        mean, low, high = (_number(found.get(key)) for key in ("mean", "low", "high"))
        return mean, low, high

    def patients_with(self, column: str) -> int:
        """Number of patients who have a value in a column of which there are intervals."""
        return int(self.summary["over_patients"].get(column, {}).get("patients", self.patients))


def without_names(results: Sequence[Result]) -> list[Result]:
    """The results without names, paths and pictures; patients are numbered, all results alike, by their first Dice."""
    dice: dict[str, float] = {}
    volumes: dict[str, set[str]] = {}
    for result in results:
        dice = result.by_patient("dsc") | dice
        for row in result.rows:
            volumes.setdefault(row["patient"], set()).add(row["volume"])
    ranked = sorted(dice, key=lambda name: (math.isnan(dice[name]), dice[name], name))
    number = {name: place for place, name in enumerate(ranked, start=1)}
    names = {
        (patient, volume): {"patient": str(number[patient]), "volume": f"{number[patient]}.{place}"}
        for patient, own in volumes.items()
        for place, volume in enumerate(sorted(own), start=1)
    }
    return [
        replace(
            result,
            summary={key: value for key, value in result.summary.items() if key != "source"},
            rows=[{**row, **names[row["patient"], row["volume"]]} for row in result.rows],
            promised=[{**row, **names[row["patient"], row["volume"]]} for row in result.promised],
            views=(),
        )
        for result in results
    ]


def check_comparable(results: Sequence[Result]) -> None:
    """Refuse results that were measured in different ways, or that have no patient in common."""
    first = results[0]
    for other in results[1:]:
        for name in SAME:
            own, its = (result.summary["settings"].get(name) for result in (first, other))
            if own != its:
                raise InputError(f"{first.label} and {other.label} cannot be compared: {name} is {own!r} and {its!r}")
        if not set(first.masks) & set(other.masks):
            raise InputError(f"{first.label} and {other.label} cannot be compared: they have no mask in common")
        if not {row["patient"] for row in first.rows} & {row["patient"] for row in other.rows}:
            raise InputError(f"{first.label} and {other.label} cannot be compared: they have no patient in common")


def difference(result: Result, reference: Result, measure: Measure) -> Difference:
    """Compare two results on the patients that both have."""
    own, its = (one.by_patient(measure.key) for one in (result, reference))
    common = [name for name in own if name in its and not math.isnan(own[name] - its[name])]
    interval = patient_difference([own[name] for name in common], [its[name] for name in common])
    return Difference(measure, *interval, len(common))


def _read_rows(path: Path) -> list[dict[str, Any]]:
    text = path.read_text(encoding="utf-8")
    return [
        {name: value if name in NAMES else _number(value) for name, value in row.items()}
        for row in csv.DictReader(io.StringIO(text))
    ]


def _number(value: Any) -> float:
    return math.nan if value is None or value == "" else float(value)
