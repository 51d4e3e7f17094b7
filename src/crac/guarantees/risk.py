"""Thresholds that keep the share of missed voxels, or of wrong ones, below a level."""

from typing import Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from crac.errors import one_of
from crac.functional.arrays import Array
from crac.guarantees.base import ClassGuarantee
from crac.guarantees.case import LabelledVolume, check_volume, like
from crac.guarantees.counts import LabelCounts, Numbers
from crac.guarantees.levels import THRESHOLDS
from crac.guarantees.units import Unit, reduce_unit, within_budget

Loss = Literal["fnr", "fdr"]
Curve = NDArray[np.float64]


class RiskControl(ClassGuarantee):
    """A threshold ``t`` per class such that the set ``{p >= t}`` keeps its risk below ``alpha``, on average.

    ``"fnr"``: the share of the class's voxels that the set misses; ``t`` is the largest threshold that keeps it. A
    patient without the class does not count for it.

    ``"fdr"``: the share of the set that is not the class, 0 for an empty set; ``t`` is the smallest threshold such that
    it and all above it keep the risk, which need not fall steadily. All patients count.

    Args:
        num_classes: ``K``, the background included.
        alpha: The risk that is accepted, between 0 and 1.
        loss: ``"fnr"`` or ``"fdr"``.
        unit: As for :class:`~crac.guarantees.base.Guarantee`.

    Attributes:
        thresholds: ``(K,)`` in ``float64``, exact to 1e-4; NaN for the background and where nothing can be promised.

    Example:
        >>> from crac import Case
        >>> labels = torch.tensor([[0, 1, 1, 1]])
        >>> sure = torch.tensor([[0.1, 0.3, 0.8, 0.9]])
        >>> cases = [Case(torch.stack([1 - sure, sure]), labels, (1.0, 1.0)) for _ in range(9)]
        >>> RiskControl(num_classes=2, alpha=0.1).fit(cases).thresholds
        tensor([   nan, 0.3000], dtype=torch.float64)
    """

    values = ("thresholds",)
    thresholds: Tensor

    def __init__(self, num_classes: int, alpha: float = 0.1, loss: Loss = "fnr", *, unit: Unit = "mean") -> None:
        if loss not in get_args(Loss):
            raise one_of("loss", loss, get_args(Loss))
        self.loss = loss
        super().__init__(num_classes, alpha, unit=unit)

    def __call__(self, probabilities: Array) -> Array:
        """Which voxels belong to the set of each class, boolean ``(K, *S)``.

        Where nothing can be promised, only a trivial set is safe: the whole image for ``"fnr"``, nothing for ``"fdr"``.
        The background has no set.
        """
        volume = check_volume(probabilities, [1.0] * (len(probabilities.shape) - 1), self.num_classes)
        out = torch.empty(tuple(probabilities.shape), dtype=torch.bool)
        for index, values in volume.slabs():
            part = out[(slice(None), *index)]
            part.copy_(self.members(values).view(part.shape))
        return like(out, probabilities)

    def curve(self, number: int) -> Curve:
        """Mean loss of the patients of a class at every one of :data:`~crac.guarantees.levels.THRESHOLDS`."""
        units = [reduce_unit(volumes, self.unit) for volumes in self._curves[number].values()]
        return np.asarray(np.mean(units, axis=0))

    def members(self, values: Tensor) -> Tensor:
        """Which of the voxels whose probabilities are ``(K, V)``, in ``float32``, belong to each set, ``(K, V)``."""
        return values >= self._limits()[:, None]

    def set_sizes(self, counts: LabelCounts) -> tuple[Numbers, Numbers]:
        """How many voxels of a volume are in the set of each class, and how many of these are right, ``(K,)`` each."""
        reached = self._limits().double().numpy()[:, None] <= THRESHOLDS
        return (counts.sizes * reached).sum(1), (counts.hits * reached).sum(1)

    def _limits(self) -> Tensor:
        limits = self.thresholds.nan_to_num(0.0 if self.loss == "fnr" else torch.inf).float()
        limits[limits == 0] = -torch.inf  # rounding may leave a little less than 0
        limits[0] = torch.inf
        return limits

    def _observe(self, case: LabelledVolume) -> None:
        for number in range(1, self.num_classes):
            hits, sizes, found = case.counts.hits[number], case.counts.sizes[number], case.counts.voxels[number]
            self._present[number] |= bool(found)
            if self.loss == "fdr":
                self._curves[number].setdefault(case.patient, []).append(_wrong(hits, sizes))
            elif found:
                missed = np.concatenate([[0], np.cumsum(hits)[:-1]])
                self._curves[number].setdefault(case.patient, []).append(missed / found)

    def _count(self, number: int) -> int:
        return len(self._curves[number]) if self._present[number] else 0

    def _solve_class(self, number: int, patients: int) -> str | None:
        level = best_level(self.curve(number) * patients, patients, self.alpha, self.loss)
        if level is None:
            return f"even where the model is surest, more than {self.alpha:g} would be wrong"
        self.thresholds[number] = float(THRESHOLDS[level])
        return None

    def _reset(self) -> None:
        super()._reset()
        self._curves: list[dict[str, list[Curve]]] = [{} for _ in range(self.num_classes)]
        self._present = [False] * self.num_classes


def best_level(total: Curve, patients: int, alpha: float, loss: Loss) -> int | None:
    """The number of the threshold that keeps the risk with the largest benefit; None if none keeps it.

    Args:
        total: Summed losses of the patients at every threshold.
        patients: How many there are.
        alpha: Level.
        loss: Whether the thresholds up to the one sought must keep it (``"fnr"``), or those from it on (``"fdr"``).
    """
    broken = np.flatnonzero(~within_budget(total, patients, alpha))
    if loss == "fnr":
        level = int(broken[0]) - 1 if broken.size else len(total) - 1
        return level if level >= 0 else None
    level = int(broken[-1]) + 1 if broken.size else 0
    return level if level < len(total) else None


def _wrong(hits: Numbers, sizes: Numbers) -> Curve:
    """Share of the set from each threshold on that is not the class."""
    right, size = (np.cumsum(counts[::-1])[::-1] for counts in (hits, sizes))
    return np.asarray(1 - np.divide(right, size, out=np.ones(len(size)), where=size > 0))
