"""Volumes with an interval that covers the truth."""

import math
from collections.abc import Mapping, Sequence
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from crac.errors import one_of
from crac.functional.arrays import Array
from crac.guarantees.base import ClassGuarantee
from crac.guarantees.case import LabelledVolume, check_volume, like
from crac.guarantees.counts import Sums, Values
from crac.guarantees.units import SLACK, Unit, least_bound

Scale = Literal["uncertainty", "estimate"]


class VolumeInterval(ClassGuarantee):
    """The volume of each class as its probabilities expect it, with an interval that covers the true one.

    The estimate is ``sum p`` times the size of a voxel; the interval reaches from ``estimate - below * scale`` to
    ``estimate + above * scale``. Each end takes half of the risk, so that a model whose estimates are mostly too large
    gets an interval that reaches down; patients too few for two halves (fewer than 19 at 0.1) get the same reach on
    both sides. A patient without the class has a volume of 0, and counts; a volume with voxels that nobody has labelled
    does not.

    Args:
        num_classes: ``K``, the background included.
        alpha: The accepted risk that the interval does not hold the true volume.
        scale: What makes an interval wide: the volume's own ``"uncertainty"``, ``sqrt(sum p (1 - p))`` as the sum of
            independent patches of one size has it (the size is part of the factor), or the ``"estimate"``.
        unit: As for :class:`~crac.guarantees.base.Guarantee`.

    Attributes:
        below: ``(K,)``; NaN for the background and where nothing can be promised.
        above: ``(K,)`` likewise.
    """

    values = ("below", "above")
    below: Tensor
    above: Tensor

    def __init__(
        self, num_classes: int, alpha: float = 0.1, *, scale: Scale = "uncertainty", unit: Unit = "mean"
    ) -> None:
        if scale not in get_args(Scale):
            raise one_of("scale", scale, get_args(Scale))
        self.scale = scale
        super().__init__(num_classes, alpha, unit=unit)

    def predict(self, probabilities: Array, spacing: Sequence[float]) -> Array:
        """Estimate, low and high end of each class, ``(K, 3)`` in millilitres (2-D: square centimetres).

        Where nothing can be promised the interval is unbounded, from 0 to infinity; the background has none, NaN.

        Args:
            probabilities: ``(K, *S)``.
            spacing: Millimetres between voxels.
        """
        volume = check_volume(probabilities, spacing, self.num_classes)
        found = self.interval(volume.counted().sums, volume.voxel)
        return like(torch.from_numpy(found), probabilities)

    def interval(self, sums: Sums, voxel: float) -> Values:
        """The same for a volume whose probabilities were added up; ``voxel`` is the size of one."""
        estimate = sums.expected * voxel
        scale = self._scale(sums, voxel)
        down, up = (np.nan_to_num(factor.numpy(), nan=np.inf) * scale for factor in (self.below, self.above))
        high = np.where(np.isinf(up), np.inf, np.minimum(estimate + up, sums.voxels * voxel))
        result = np.stack([estimate, np.maximum(estimate - down, 0), high], axis=1)
        result[0, 1:] = np.nan
        return np.asarray(result)

    def _scale(self, sums: Sums, voxel: float) -> Values:
        # One voxel more, so that nothing is ever quite certain.
        return np.asarray(
            (sums.expected + 1) * voxel if self.scale == "estimate" else np.sqrt((sums.undecided + 1) * voxel)
        )

    def _observe(self, case: LabelledVolume) -> None:
        if case.ignored is not None:  # how much there is of each class is not known
            return
        true, sums, voxel = case.counts.voxels, case.own.sums, case.volume.voxel
        scores = (true - sums.expected) * voxel / self._scale(sums, voxel)
        for number in range(1, self.num_classes):
            self._scores[number].setdefault(case.patient, []).append(float(scores[number]))
            self._present[number] |= bool(true[number])

    def _solve(self) -> None:
        super()._solve()
        if not self._scores[1]:
            self.reasons = dict.fromkeys(self.reasons, "no calibration patient is labelled throughout")

    def _count(self, number: int) -> int:
        return len(self._scores[number]) if self._present[number] else 0

    def _solve_class(self, number: int, patients: int) -> None:
        down, up = ends(self._scores[number], self.alpha, self.unit)
        # The estimate itself is never outside.
        self.below[number], self.above[number] = max(down, 0.0), max(up, 0.0)

    def _reset(self) -> None:
        super()._reset()
        self._scores: list[dict[str, list[float]]] = [{} for _ in range(self.num_classes)]
        self._present = [False] * self.num_classes


def ends(scores: Mapping[str, Sequence[float]], alpha: float, unit: Unit) -> tuple[float, float]:
    """How far below and above 0 signed scores of a new patient lie, with a risk of at most ``alpha`` together."""
    patients = len(scores)
    half = math.floor(alpha * (patients + 1) / 2 + SLACK) / (patients + 1)
    if not half:
        both = least_bound({key: [abs(score) for score in own] for key, own in scores.items()}, alpha, unit)
        return both, both
    mirrored = {key: [-score for score in own] for key, own in scores.items()}
    return least_bound(mirrored, half, unit), least_bound(scores, alpha - half, unit)
