"""All that guarantees need to know of a volume, counted in one pass over its voxels."""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from crac.guarantees.levels import THRESHOLDS, histogram
from crac.metrics.surface import surface

Index = tuple[slice, ...]
Values = NDArray[np.float64]
Numbers = NDArray[np.int64]


class Sums(NamedTuple):
    """Sums over voxels, ``(K,)`` each, and how many voxels there were.

    Attributes:
        expected: Sums of the probabilities ``p``.
        undecided: Sums of ``p (1 - p)``.
        voxels: Number of voxels.
    """

    expected: Values
    undecided: Values
    voxels: int

    def add(self, values: Tensor) -> "Sums":
        """The sums with those of ``(K, V)`` more probabilities."""
        # Within a slab in float32: torch adds pairwise, and that is many times as fast.
        undecided = (1 - values).mul_(values).clamp_(min=0).sum(1)
        added = (row.double().numpy() for row in (values.sum(1), undecided))
        return Sums(self.expected + next(added), self.undecided + next(added), self.voxels + values.shape[1])


class Doubts(NamedTuple):
    """How doubtful a case is by its own probabilities, between 0 (sure) and 1.

    Attributes:
        expected_dice: 1 minus the Dice that the probabilities expect of the most probable classes, the mean over
            classes.
        volume_uncertainty: Sum of ``p (1 - p)`` over the sum of ``p``, of all classes but the background.
        boundary_entropy: Mean entropy, as a share of the largest, of the voxels on predicted surfaces; 1 if there are
            none, NaN if it was not counted.
    """

    expected_dice: float
    volume_uncertainty: float
    boundary_entropy: float


class VolumeCounter:
    """What the probabilities of a volume say by themselves; they may come in parts.

    Args:
        classes: ``K``.
        shape: ``S``.
        entropy: Whether to keep the entropy of every voxel, which takes time and 2 bytes a voxel.

    Attributes:
        sums: Over all voxels.
        winners: ``(*S)``, the most probable class of each voxel.
    """

    def __init__(self, classes: int, shape: Sequence[int], entropy: bool = False) -> None:
        self.sums = Sums(np.zeros(classes), np.zeros(classes), 0)
        self.winners = np.empty(tuple(shape), dtype=np.uint8 if classes <= 256 else np.uint16)
        self._inside, self._size = np.zeros((2, classes))
        self._entropy = np.empty(tuple(shape), dtype=np.float16) if entropy else None

    def add(self, index: Index, values: Tensor) -> Tensor:
        """Take in the probabilities ``(K, V)``, ``float32``, of the voxels at an index of ``S``; return the winners."""
        top, winner = values.max(0)
        self.sums = self.sums.add(values)
        self._inside += torch.bincount(winner, top.double(), minlength=len(values)).numpy()
        self._size += torch.bincount(winner, minlength=len(values)).numpy()
        part = self.winners[index]
        part[...] = winner.numpy().reshape(part.shape)
        if self._entropy is not None:
            values = values.clamp(min=0)  # rounding may leave less, of which there is no logarithm
            entropy = torch.xlogy(values, values).sum(0).div_(-math.log(len(values)))
            self._entropy[index] = entropy.numpy().reshape(part.shape)
        return winner

    def doubts(self) -> Doubts:
        """How doubtful the volume is."""
        # One voxel more in both: a class that is nowhere, and not expected anywhere, is nothing to doubt.
        overlap = (2 * self._inside + 1) / (self._size + self.sums.expected + 1)
        share = self.sums.undecided[1:].sum() / (self.sums.expected[1:].sum() + 1)
        return Doubts(float(1 - overlap[1:].mean()), float(share), self._boundary_entropy())

    def _boundary_entropy(self) -> float:
        if self._entropy is None:
            return math.nan
        total, voxels = 0.0, 0
        for number, box in boxes(self.winners, len(self._size)):
            found = self._entropy[box][surface(self.winners[box] == number)]
            total, voxels = total + float(found.sum(dtype=np.float64)), voxels + len(found)
        return total / voxels if voxels else 1.0


class LabelCounts(NamedTuple):
    """Probabilities and labels counted together; voxels that nobody has labelled do not count.

    Attributes:
        hits: ``(K, L)``, how many voxels of each class have a probability of it from each of the ``L``
            :data:`~crac.guarantees.levels.THRESHOLDS` up to the next.
        sizes: ``(K, L)``, the same of all voxels.
        pairs: ``(K, K)``, how many voxels of each most probable class (rows) have each label (columns).
    """

    hits: Numbers
    sizes: Numbers
    pairs: Numbers

    @classmethod
    def zeros(cls, classes: int) -> "LabelCounts":
        """Nothing counted yet."""
        levels = classes, len(THRESHOLDS)
        return cls(np.zeros(levels, np.int64), np.zeros(levels, np.int64), np.zeros((classes, classes), np.int64))

    @property
    def voxels(self) -> Numbers:
        """How many voxels each class has by its label, ``(K,)``."""
        return np.asarray(self.pairs.sum(0))

    @property
    def dice(self) -> float:
        """Dice of the most probable classes, mean over the foreground classes in either map; 1 if there are none."""
        size = (self.pairs.sum(0) + self.pairs.sum(1))[1:]
        shown = size > 0
        return float(np.mean(2 * self.pairs.diagonal()[1:][shown] / size[shown])) if shown.any() else 1.0

    def add(self, values: Tensor, winner: Tensor, labels: Tensor) -> None:
        """Count the voxels of probabilities ``(K, V)``, most probable classes ``(V,)`` and labels ``(V,)``."""
        classes = len(values)
        pairs = torch.bincount(winner * classes + labels, minlength=classes * classes).view(classes, classes)
        self.pairs[...] += pairs.numpy()
        present = pairs.sum(0)
        for number in range(1, classes):
            self.sizes[number] += histogram(values[number])
            if present[number]:
                self.hits[number] += histogram(values[number][labels == number])


def boxes(classes: NDArray[np.integer], num_classes: int) -> Iterator[tuple[int, Index]]:
    """The smallest box around each class that there is, the background left out."""
    from scipy.ndimage import find_objects

    for number, box in enumerate(find_objects(classes, max_label=num_classes - 1), start=1):
        if box is not None:
            yield number, box
