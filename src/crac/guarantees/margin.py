"""Margins in millimetres: how far a contour must grow to hold the organ, or shrink to lie within it."""

import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from crac.functional.arrays import Array
from crac.functional.distances import within
from crac.guarantees.base import ClassGuarantee
from crac.guarantees.case import LabelledVolume, check_volume, like
from crac.guarantees.counts import Index, boxes
from crac.guarantees.units import least_bound
from crac.metrics.surface import surface

Mask = NDArray[np.bool_]


class Margin(ClassGuarantee):
    """How far the predicted contour of each class must grow to cover the label, and shrink to lie within it.

    The contour is that of the most probable class. Distances are Euclidean, between the centres of voxels; the edge of
    the image is no boundary. Outwards, a patient without the class does not count; inwards, all patients count.

    Args:
        num_classes: ``K``, the background included.
        alpha: The accepted risk that the grown contour leaves a voxel of the class out (or the shrunken one holds one
            that is not of the class).
        unit: As for :class:`~crac.guarantees.base.Guarantee`.

    Attributes:
        millimetres: ``(K,)`` outwards; NaN for the background and where nothing can be promised, infinite where too
            many predictions missed the class altogether.
        inwards: ``(K,)`` likewise.
    """

    values = ("millimetres", "inwards")
    millimetres: Tensor
    inwards: Tensor

    def __call__(self, probabilities: Array, spacing: Sequence[float]) -> Array:
        """The grown contours, boolean ``(K, *S)``; the whole image where no margin suffices, nothing for class 0."""
        return self._moved(probabilities, spacing, self.millimetres.tolist(), outwards=True)

    def core(self, probabilities: Array, spacing: Sequence[float]) -> Array:
        """The shrunken contours, boolean ``(K, *S)``; nothing where no margin suffices."""
        return self._moved(probabilities, spacing, self.inwards.tolist(), outwards=False)

    def _moved(self, probabilities: Array, spacing: Sequence[float], distances: list[float], outwards: bool) -> Array:
        volume = check_volume(probabilities, spacing, self.num_classes)
        winners = volume.counted().winners
        out = torch.zeros(tuple(probabilities.shape), dtype=torch.bool)
        for number, box in boxes(winners, self.num_classes):
            distance = distances[number]
            if math.isfinite(distance):
                part = _grown(box, winners.shape, [int(distance / side) + 1 for side in volume.spacing])
                mask = torch.from_numpy(winners[part] == number)
                near = within(mask if outwards else ~mask, mask.ndim, distance, volume.spacing)
                out[number][part] = near if outwards else mask & ~near
        if outwards:
            for number in range(1, self.num_classes):
                out[number] |= not math.isfinite(distances[number])
        return like(out, probabilities)

    def _observe(self, case: LabelledVolume) -> None:
        for number, (outwards, inwards) in enumerate(needed(case), start=1):
            if outwards is not None:
                self._outwards[number].setdefault(case.patient, []).append(outwards)
            self._inwards[number].setdefault(case.patient, []).append(inwards)

    def _count(self, number: int) -> int:
        return len(self._outwards[number])

    def _solve_class(self, number: int, patients: int) -> None:
        self.millimetres[number] = least_bound(self._outwards[number], self.alpha, self.unit)
        self.inwards[number] = least_bound(self._inwards[number], self.alpha, self.unit)

    def _reset(self) -> None:
        super()._reset()
        self._outwards: list[dict[str, list[float]]] = [{} for _ in range(self.num_classes)]
        self._inwards: list[dict[str, list[float]]] = [{} for _ in range(self.num_classes)]


def needed(case: LabelledVolume) -> list[tuple[float | None, float]]:
    """The millimetres each foreground class needs, outwards (None if the patient does not have it) and inwards."""
    winners, spacing, classes = case.own.winners, case.volume.spacing, len(case.volume.probabilities)
    found, drawn = dict(boxes(winners, classes)), dict(boxes(case.labels, classes))
    result: list[tuple[float | None, float]] = []
    for number in range(1, classes):
        outwards, inwards = 0.0, 0.0
        box = _union(found.get(number), drawn.get(number))
        if box is not None:
            box = _grown(box, winners.shape, [1] * winners.ndim)
            predicted, labelled = winners[box] == number, case.labels[box] == number
            outwards = _farthest(labelled & ~predicted, predicted, spacing)
            wrong = predicted & ~labelled if case.ignored is None else predicted & ~labelled & ~case.ignored[box]
            inwards = _farthest(wrong, ~predicted, spacing)
        result.append((outwards if number in drawn else None, inwards))
    return result


def _union(first: Index | None, second: Index | None) -> Index | None:
    if first is None or second is None:
        return first or second
    return tuple(slice(min(a.start, b.start), max(a.stop, b.stop)) for a, b in zip(first, second, strict=True))


def _grown(box: Index, shape: Sequence[int], reach: Sequence[int]) -> Index:
    sides = zip(box, shape, reach, strict=True)
    return tuple(slice(max(side.start - more, 0), min(side.stop + more, size)) for side, size, more in sides)


def _farthest(sources: Mask, targets: Mask, spacing: Sequence[float]) -> float:
    """The largest distance from a source to its nearest target: 0 without sources, infinite without targets."""
    from scipy.spatial import KDTree

    if not sources.any():
        return 0.0
    points = np.argwhere(surface(targets))  # from outside a set, its nearest voxel is on its surface
    if not len(points):
        return math.inf
    size = np.asarray(spacing)
    tree = KDTree(points * size, compact_nodes=False, balanced_tree=False)
    return float(tree.query(np.argwhere(sources) * size, workers=-1)[0].max())
