"""Results put in order: by data set and backbone, by method, over seeds."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crac.benchmark.result import CellResult
from crac.benchmark.tables import Measure, Number
from crac.losses import METHODS

__all__ = ["MAIN", "MASK", "Group", "Row", "Sweep", "group_results", "patient_table"]

MASK = "label_foreground"
MAIN = (
    Measure("dsc", "DSC", 3, True),
    Measure("hd95", "HD95", 2),
    Measure(f"ece[{MASK}]", "ECE"),
    Measure(f"tace[{MASK}]", "TACE"),
)
"""The paper's four."""


@dataclass(frozen=True)
class Row:
    """One method on one data set with one backbone.

    Args:
        results: One per seed, in their order.
    """

    results: Sequence[CellResult]

    @property
    def method(self) -> str:
        """Name."""
        return self.results[0].cell.method

    @property
    def label(self) -> str:
        """Name for people."""
        return self.results[0].cell.label

    @property
    def is_crac(self) -> bool:
        """Whether it is a method of ours."""
        return bool(self.results[0].settings["method"] == "crac")

    def number(self, measure: Measure, signed: bool = False) -> Number | None:
        """Mean and standard deviation over seeds of a measure's mean over volumes."""
        return self.over_seeds(lambda result: result.mean(measure.key), measure.decimals, signed)

    def over_seeds(self, value: Callable[[CellResult], Any], decimals: int = 3, signed: bool = False) -> Number | None:
        """Mean and standard deviation of anything; None where a seed has no value."""
        values = np.array([math.nan if (v := value(result)) is None else v for result in self.results], dtype=float)
        if np.isnan(values).any():
            return None
        sd = float(values.std(ddof=1)) if len(values) > 1 else None
        return Number(float(values.mean()), sd, decimals, signed=signed)

    def by_patient(self, measure: Measure) -> dict[str, float]:
        """Mean over seeds and over a patient's volumes; patients without a value are left out."""
        patient_of = self.results[0].patients
        values: dict[str, list[float]] = {}
        for result in self.results:
            for volume, value in zip(sorted(result.volumes), result.values(measure.key).tolist(), strict=True):
                values.setdefault(patient_of[volume], []).append(value)
        means = {patient: float(np.mean(found)) for patient, found in sorted(values.items())}
        return {patient: mean for patient, mean in means.items() if not math.isnan(mean)}


def patient_table(rows: Sequence[Row], measure: Measure) -> NDArray[np.float64]:
    """``(rows, patients)``: a measure of the patients on whom every row has it."""
    found = [row.by_patient(measure) for row in rows]
    shared = [patient for patient in found[0] if all(patient in one for one in found)]
    return np.array([[one[patient] for patient in shared] for one in found], dtype=np.float64)


@dataclass(frozen=True)
class Sweep:
    """A method with several values of one keyword.

    Args:
        option: The keyword.
        rows: By its value, in growing order; among them the method's row in the tables if that has a value of its own.
    """

    option: str
    rows: dict[float, Row]

    def label(self, value: float) -> str:
        """A row for people."""
        row = self.rows[value]
        return row.label if row.results[0].cell.sweep else f"{row.label} {self.option} {value:g}"


@dataclass(frozen=True)
class Group:
    """Everything on one data set with one backbone.

    Args:
        dataset: Name of the data set.
        label: The same for people.
        backbone: Name of the network.
        rows: The methods, in the order of :data:`crac.METHODS`.
        sweeps: By method.
    """

    dataset: str
    label: str
    backbone: str
    rows: list[Row]
    sweeps: dict[str, Sweep]

    @property
    def name(self) -> str:
        """For files."""
        return f"{self.dataset}-{self.backbone}"

    @property
    def title(self) -> str:
        """For people."""
        return f"{self.label}, {self.backbone}"

    @property
    def classes(self) -> list[str]:
        """Names, the background first."""
        return self.results()[0].classes

    def all_rows(self) -> list[Row]:
        """Methods and sweeps."""
        swept = [row for sweep in self.sweeps.values() for row in sweep.rows.values()]
        return [*self.rows, *(row for row in swept if row not in self.rows)]

    def row(self, method: str) -> Row | None:
        """A method by its name."""
        return next((row for row in self.rows if row.method == method), None)

    def results(self) -> list[CellResult]:
        """All runs."""
        return [result for row in self.all_rows() for result in row.results]


def group_results(results: Sequence[CellResult]) -> list[Group]:
    """Sort results into groups, the data sets and backbones in alphabetical order, ``unet`` first."""
    groups: dict[tuple[str, str], dict[str, list[CellResult]]] = {}
    for result in results:
        cell = result.cell
        groups.setdefault((cell.dataset, cell.backbone), {}).setdefault(cell.method, []).append(result)
    ordered = sorted(groups, key=lambda key: (key[0], key[1] != "unet", key[1]))
    return [_group(dataset, backbone, groups[dataset, backbone]) for dataset, backbone in ordered]


def _group(dataset: str, backbone: str, methods: dict[str, list[CellResult]]) -> Group:
    rows = [Row(sorted(results, key=lambda result: result.cell.seed)) for results in methods.values()]
    rows.sort(key=_order)
    plain = [row for row in rows if not row.results[0].cell.sweep]
    firsts = [row.results[0] for row in rows]
    options = {first.settings["method"]: option for first in firsts for option in first.cell.sweep}
    sweeps = {method: _sweep(option, method, rows) for method, option in options.items()}
    return Group(dataset, rows[0].results[0].dataset["label"], backbone, plain, sweeps)


def _sweep(option: str, method: str, rows: Sequence[Row]) -> Sweep:
    found: dict[float, Row] = {}
    for row in rows:
        first = row.results[0]
        value = first.settings["method_options"].get(option)
        if first.settings["method"] == method and value is not None and not first.cell.tempered:
            found.setdefault(value, row)
    return Sweep(option, dict(sorted(found.items())))


def _order(row: Row) -> tuple[Any, ...]:
    first = row.results[0]
    return (
        list(METHODS).index(first.settings["method"]),
        first.cell.tempered,
        sorted(first.cell.sweep.items()),
        first.cell.method,
    )
