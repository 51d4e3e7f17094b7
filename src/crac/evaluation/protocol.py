"""How a set of volumes is measured: every volume by itself, and all of them pooled.

The paper measures each volume and averages the values (*per volume*). Counting the voxels of all volumes together
(*pooled*) weighs volumes by their size and needs no value for a volume without voxels to count. Both are reported,
always under their names.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from crac.errors import InputError, one_of
from crac.metrics.calibration import MASKS, CalibrationMeter, Mask
from crac.metrics.results import CalibrationResult
from crac.metrics.segmentation import Definition, Empty, dice, surface_scores

__all__ = ["Evaluation", "Measured", "Prediction", "Protocol", "evaluate", "measure", "measure_all"]

SEGMENTATION = ("dsc", "hd95", "asd", "surface_dice")
CALIBRATION = ("ece", "mce", "ace", "cece", "tace", "tace_adaptive", "nll", "brier", "gap")
BY_REGION = ("ece", "gap")
MOST_THREADS = 8


@dataclass(frozen=True)
class Protocol:
    """What is measured, and how; repeated in every report.

    Args:
        class_names: One per class, background first; empty if not known yet.
        masks: Which voxels calibration is measured on.
        bins: Number of bins.
        threshold: TACE leaves out probabilities up to it.
        hd95: Definition of HD95, see :func:`crac.hd95`.
        empty: What the distances are where a class is absent from the prediction or the labels.
        tolerance: Of the surface Dice, in ``unit``.
        unit: Of all distances: ``"mm"`` or ``"voxel"``.
        slice_axis: Axis along which the volume was cut for a 2-D network: regions are then those of the slices.
    """

    class_names: Sequence[str]
    masks: Sequence[Mask] = ("label_foreground", "all")
    bins: int = 15
    threshold: float = 1e-3
    hd95: Definition = "pooled"
    empty: Empty = "nan"
    tolerance: float = 1.0
    unit: Literal["mm", "voxel"] = "mm"
    slice_axis: int | None = None

    def __post_init__(self) -> None:
        if len(self.class_names) == 1 or len(set(self.class_names)) != len(self.class_names):
            raise InputError(f"class_names must be at least 2 different names; got {list(self.class_names)!r}")
        if not self.tolerance >= 0:
            raise InputError(f"tolerance must be at least 0; got {self.tolerance!r}")
        if not self.masks:
            raise one_of("masks", self.masks, MASKS)
        for mask in self.masks:
            if mask not in MASKS:
                raise one_of("masks", mask, MASKS)

    def meters(self) -> dict[str, CalibrationMeter]:
        """A fresh meter for each mask."""
        return {m: CalibrationMeter(len(self.class_names), self.bins, m, self.threshold) for m in self.masks}


class Prediction(NamedTuple):
    """One volume to measure.

    Attributes:
        name: Of the volume.
        scores: ``(K, *S)`` probabilities, or logits.
        labels: ``(*S)`` integers.
        spacing: Millimetres between voxels along each axis of ``S``.
        from_logits: Whether ``scores`` are logits.
    """

    name: str
    scores: Tensor
    labels: Tensor
    spacing: Sequence[float]
    from_logits: bool = False


class Measured(NamedTuple):
    """One volume measured: a row of the table, and the counts behind it by mask."""

    row: dict[str, Any]
    states: dict[str, dict[str, Any]]


def measure(prediction: Prediction, protocol: Protocol) -> Measured:
    """Measure one volume."""
    name, scores, labels, spacing, from_logits = prediction
    kept = [axis for axis, size in enumerate(labels.shape) if size > 1 or labels.ndim == 2]
    if labels.ndim == 3 and len(kept) == 2 and protocol.slice_axis is None:
        # A single slice stored as a volume: all of it would be surface.
        gone = next(axis for axis in range(3) if axis not in kept)
        scores, labels, spacing = scores.squeeze(gone + 1), labels.squeeze(gone), [spacing[axis] for axis in kept]
    row: dict[str, Any] = {"volume": name, "voxels": labels.numel()}
    row |= _segmentation(scores.argmax(0), labels, spacing, protocol)
    meters = protocol.meters()
    axis = protocol.slice_axis
    batch = scores.unsqueeze(0) if axis is None else scores.movedim(axis + 1, 0)
    target = labels.unsqueeze(0) if axis is None else labels.movedim(axis, 0)
    for mask, meter in meters.items():
        if from_logits:
            meter.update(logits=batch, labels=target)
        else:
            meter.update(probabilities=batch, labels=target)
        row |= _calibration(mask, meter.compute())
    return Measured(row, {mask: meter.state() for mask, meter in meters.items()})


def _segmentation(predicted: Tensor, labels: Tensor, spacing: Sequence[float], protocol: Protocol) -> dict[str, float]:
    names = list(protocol.class_names)
    size = spacing if protocol.unit == "mm" else [1.0] * labels.ndim
    first, second = predicted.cpu().numpy(), labels.cpu().numpy()
    columns: dict[str, list[float]] = {"dsc": dice(first, second, len(names))[1:].tolist()}
    found = [
        surface_scores(first == k, second == k, size, protocol.tolerance, protocol.hd95, protocol.empty)
        for k in range(1, len(names))
    ]
    columns |= dict(zip(SEGMENTATION[1:], map(list, zip(*found, strict=True)), strict=True))
    means = {metric: _mean(values) for metric, values in columns.items()}
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
    """

    def __init__(self, protocol: Protocol) -> None:
        self.protocol = protocol
        self.rows: list[dict[str, Any]] = []
        self.meters = protocol.meters()

    def add(self, measured: Measured) -> None:
        """Take in one volume."""
        self.rows.append(measured.row)
        for mask, state in measured.states.items():
            part = self.protocol.meters()[mask]
            part.load_state(state)
            self.meters[mask].merge(part)

    def pooled(self) -> dict[str, CalibrationResult]:
        """Calibration of all voxels together, by mask."""
        return {mask: meter.compute() for mask, meter in self.meters.items()}

    def per_volume(self) -> dict[str, dict[str, float]]:
        """Mean, standard deviation and median over the volumes, by column; volumes without a value are left out."""
        columns = [name for name in self.rows[0] if name not in ("volume", "voxels")] if self.rows else []
        table = {name: np.array([row[name] for row in self.rows], dtype=np.float64) for name in columns}
        return {name: _spread(values[~np.isnan(values)]) for name, values in table.items()}

    def summary(self) -> dict[str, Any]:
        """Everything but the rows, as plain data."""
        names = list(self.protocol.class_names)
        return {
            "settings": asdict(self.protocol),
            "volumes": len(self.rows),
            "per_volume": self.per_volume(),
            "pooled": {mask: result.to_dict(names) for mask, result in self.pooled().items()},
        }


def evaluate(predictions: Iterable[Prediction], protocol: Protocol, on_gpu: bool = False) -> Evaluation:
    """Measure volumes, see :func:`measure_all`."""
    evaluation = Evaluation(protocol)
    for _, measured in measure_all(predictions, protocol, on_gpu):
        evaluation.add(measured)
    return evaluation


def measure_all(
    predictions: Iterable[Prediction], protocol: Protocol, on_gpu: bool = False
) -> Iterator[tuple[Prediction, Measured]]:
    """Measure volumes in their order; if ``predictions`` is lazy, few are held at a time.

    Args:
        predictions: The volumes.
        protocol: How to measure.
        on_gpu: Predictions come from a GPU: measure in threads of the CPU while it makes the next ones. Otherwise one
            volume is held at a time.
    """
    if not on_gpu:
        yield from ((prediction, measure(prediction, protocol)) for prediction in predictions)
        return
    waiting: deque[tuple[Prediction, Future[Measured]]] = deque()
    threads = min(os.cpu_count() or 1, MOST_THREADS)
    with ThreadPoolExecutor(threads) as pool:
        for prediction in predictions:
            waiting.append((prediction, pool.submit(measure, prediction, protocol)))
            if len(waiting) > threads:
                first, result = waiting.popleft()
                yield first, result.result()
        for first, result in waiting:
            yield first, result.result()


def _mean(values: Sequence[float]) -> float:
    known = torch.tensor(values, dtype=torch.float64)
    return float(known.nanmean())


def _spread(values: np.ndarray[Any, np.dtype[np.float64]]) -> dict[str, float]:
    if values.size == 0:
        return {"mean": float("nan"), "sd": float("nan"), "median": float("nan"), "volumes": 0}
    sd = float(values.std(ddof=1)) if values.size > 1 else float("nan")
    return {"mean": float(values.mean()), "sd": sd, "median": float(np.median(values)), "volumes": int(values.size)}
