"""One volume measured, and what many of them add up to.

The paper measures each volume and averages the values (*per volume*). Counting the voxels of all volumes together
(*pooled*) weighs volumes by their size and needs no value for a volume without voxels to count. Both are reported,
always under their names.
"""

import re
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from crac.evaluation.case import Case, View, single_slice
from crac.evaluation.protocol import Protocol
from crac.evaluation.realised import Realised
from crac.metrics.claims import by_patient, known_mean, patient_mean
from crac.metrics.results import CalibrationResult
from crac.metrics.segmentation import dice, surface_scores

SEGMENTATION = ("dsc", "hd95", "asd", "surface_dice")
CALIBRATION = ("ece", "mce", "ace", "cece", "tace", "tace_adaptive", "nll", "brier", "gap")
BY_REGION = ("ece", "gap")
WITH_INTERVALS = ("dsc", "hd95", "surface_dice", "ece", "gap")
"""Measures whose means over patients come with an interval, of every class, region and mask."""
NO_MEASURES = ("volume", "patient", "voxels")
"""Columns of a row that say what was measured."""


class Measured(NamedTuple):
    """One volume measured: a row of the table, and the counts behind it by mask."""

    row: dict[str, Any]
    states: dict[str, dict[str, Any]]


Shapes = dict[str, tuple[Tensor, dict[str, float]]]
"""Name of a volume -> a predicted label map of it, and its segmentation scores."""


def measure(case: Case, protocol: Protocol, shapes: Shapes | None = None) -> Measured:
    """Measure one volume.

    Args:
        case: The volume.
        protocol: How to measure.
        shapes: Segmentation scores that are known, and where to keep new ones: distances between surfaces take most of
            the time, and calibration changes no label.
    """
    name, patient, scores, labels, spacing, from_logits = case[:6]
    axis = case.axis
    size = list(spacing) if protocol.unit == "mm" else [1.0] * labels.ndim
    in_slices = protocol.regions == "slice" and labels.ndim == 3
    if in_slices:
        batch, target, sides = scores.movedim(axis + 1, 0), labels.movedim(axis, 0), size[:axis] + size[axis + 1 :]
    single = single_slice(labels.shape)
    if labels.ndim == 3 and single is not None:
        # A single slice stored as a volume: all of it would be surface.
        scores, labels = scores.squeeze(single + 1), labels.squeeze(single)
        del size[single]
    if not in_slices:
        batch, target, sides = scores.unsqueeze(0), labels.unsqueeze(0), size
    row: dict[str, Any] = {"volume": name, "patient": patient, "voxels": labels.numel()}
    predicted = scores.argmax(0)
    found = None if shapes is None else shapes.get(name)
    if found is None or not torch.equal(found[0], predicted):
        found = predicted, _segmentation(predicted, labels, size, protocol)
        if shapes is not None:
            shapes[name] = found
    row |= found[1]
    meters = protocol.meters()
    for mask, meter in meters.items():
        if from_logits:
            meter.update(logits=batch, labels=target, spacing=sides)
        else:
            meter.update(probabilities=batch, labels=target, spacing=sides)
        row |= _calibration(mask, meter.compute())
    row |= dict.fromkeys(protocol.left_out(), float("nan"))
    return Measured(row, {mask: meter.state() for mask, meter in meters.items()})


def _segmentation(predicted: Tensor, labels: Tensor, size: Sequence[float], protocol: Protocol) -> dict[str, float]:
    names = list(protocol.class_names)
    first, second = predicted.cpu().numpy(), labels.cpu().numpy()
    if protocol.ignore_index is not None:  # as if neither showed anything there
        known = second != protocol.ignore_index
        first, second = first * known, second * known
    columns: dict[str, list[float]] = {"dsc": dice(first, second, len(names))[1:].tolist()}
    found = [
        surface_scores(first == k, second == k, size, protocol.tolerance, protocol.hd95, protocol.empty)
        for k in range(1, len(names))
    ]
    columns |= dict(zip(SEGMENTATION[1:], map(list, zip(*found, strict=True)), strict=True))
    means = {metric: known_mean(values) for metric, values in columns.items()}
    return means | {
        f"{metric}.{name}": value
        for metric, values in columns.items()
        for name, value in zip(names[1:], values, strict=True)
    }


def _calibration(mask: str, result: CalibrationResult) -> dict[str, float]:
    row = {f"{metric}[{mask}]": float(getattr(result, metric)) for metric in CALIBRATION}
    for region, part in result.by_region.items():
        row |= {f"{metric}.{region}[{mask}]": float(getattr(part, metric)) for metric in BY_REGION}
    return row


class Evaluation:
    """The measurements of a set of volumes.

    Args:
        protocol: How they were made.

    Attributes:
        rows: One per volume.
        meters: The pooled counts, by mask.
        realised: What came of the model's guarantees on these volumes, if it has any.
        views: Slices of cases to look at, see :func:`crac.evaluation.views.look_at`.
    """

    def __init__(self, protocol: Protocol) -> None:
        self.protocol = protocol
        self.rows: list[dict[str, Any]] = []
        self.views: list[View] = []
        self.meters = protocol.meters()
        self.realised: Realised | None = None

    def add(self, measured: Measured) -> None:
        """Take in one volume."""
        self.rows.append(measured.row)
        for mask, state in measured.states.items():
            part = self.protocol.meters()[mask]
            part.load_state(state)
            self.meters[mask].merge(part)

    @property
    def columns(self) -> list[str]:
        """Names of the measures."""
        return [name for name in self.rows[0] if name not in NO_MEASURES] if self.rows else []

    def pooled(self) -> dict[str, CalibrationResult]:
        """Calibration of all voxels together, by mask."""
        return {mask: meter.compute() for mask, meter in self.meters.items()}

    def per_volume(self) -> dict[str, dict[str, float]]:
        """Mean, standard deviation and median over the volumes, by column; volumes without a value are left out."""
        return {name: _spread(np.array([row[name] for row in self.rows], dtype=np.float64)) for name in self.columns}

    def by_patient(self, column: str) -> dict[str, float]:
        """The mean of a column over each patient's volumes that have a value; NaN where none has."""
        return by_patient(self.rows, column)

    def over_patients(self) -> dict[str, dict[str, float]]:
        """Means over patients with their 95 % intervals; the interval of too few patients is NaN."""
        found = {}
        for column in self.columns:
            if re.split(r"[.\[]", column, maxsplit=1)[0] in WITH_INTERVALS:
                values = list(self.by_patient(column).values())
                mean, low, high = patient_mean(values)
                patients = int(np.isfinite(values).sum())
                found[column] = {"mean": mean, "low": low, "high": high, "patients": patients}
        return found

    def summary(self) -> dict[str, Any]:
        """Everything but the rows, as plain data."""
        names = list(self.protocol.class_names)
        guarantees = {} if self.realised is None else {"guarantees": self.realised.summary}
        return {
            "left_out": self.protocol.left_out(),
            "settings": asdict(self.protocol),
            "volumes": len(self.rows),
            "patients": len({row["patient"] for row in self.rows}),
            "over_patients": self.over_patients(),
            "per_volume": self.per_volume(),
            "pooled": {mask: result.to_dict(names) for mask, result in self.pooled().items()},
            **guarantees,
        }


def _spread(values: np.ndarray[Any, np.dtype[np.float64]]) -> dict[str, float]:
    values = values[~np.isnan(values)]
    if values.size == 0:
        return {"mean": float("nan"), "sd": float("nan"), "median": float("nan"), "volumes": 0}
    sd = float(values.std(ddof=1)) if values.size > 1 else float("nan")
    return {"mean": float(values.mean()), "sd": sd, "median": float(np.median(values)), "volumes": int(values.size)}
