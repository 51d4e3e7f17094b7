"""Volumes with an interval that covers the truth."""

from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from crac.errors import one_of
from crac.guarantees.base import ClassGuarantee
from crac.guarantees.case import Array, LabelledVolume, check_volume, like
from crac.guarantees.counts import Sums, Values
from crac.guarantees.units import Unit, least_bound

Scale = Literal["uncertainty", "estimate"]


class VolumeInterval(ClassGuarantee):
    """The volume of each class as its probabilities expect it, with an interval that covers the true one.

    The estimate is ``sum p`` times the size of a voxel, the interval is ``estimate +- factor * scale``. A patient
    without the class has a volume of 0, and counts; a volume with voxels that nobody has labelled does not.

    Args:
        num_classes: ``K``, the background included.
        alpha: The accepted risk that the interval does not hold the true volume.
        scale: What makes an interval wide: the volume's own ``"uncertainty"``, ``sqrt(sum p (1 - p))`` as the sum of
            independent patches of one size has it (the size is part of the factor), or the ``"estimate"``.
        unit: As for :class:`~crac.guarantees.base.Guarantee`.

    Attributes:
        factors: ``(K,)``; NaN for the background and where nothing can be promised.
    """

    values = ("factors",)
    factors: Tensor

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
        reach = np.nan_to_num(self.factors.numpy(), nan=np.inf) * self._scale(sums, voxel)
        high = np.where(np.isinf(reach), np.inf, np.minimum(estimate + reach, sums.voxels * voxel))
        result = np.stack([estimate, np.maximum(estimate - reach, 0), high], axis=1)
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
        scores = np.abs(true - sums.expected) * voxel / self._scale(sums, voxel)
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
        self.factors[number] = least_bound(self._scores[number], self.alpha, self.unit)

    def _reset(self) -> None:
        super()._reset()
        self._scores: list[dict[str, list[float]]] = [{} for _ in range(self.num_classes)]
        self._present = [False] * self.num_classes
