"""Cases in memory that can be looked at."""

from collections.abc import Iterable

import numpy as np
import torch

from crac.data.upright import Upright
from crac.evaluation import Case, LoadedCases
from crac.evaluation.views import Look


class LookedCases(LoadedCases):
    """Cases whose image is their label, brighter."""

    def __init__(self, cases: Iterable[Case], upright: Upright = Upright((0, 1, 2), ()), image: bool = True) -> None:  # noqa: B008
        super().__init__(cases)
        self.upright, self.image = upright, image

    def look(self, name: str) -> Look:
        labels = self.load(name).labels.numpy().astype(np.float32)
        return Look(100 * labels if self.image else None, self.upright)


def organ(name: str, shift: int, shape: tuple[int, ...] = (6, 30, 40), sure: float = 0.9) -> Case:
    """A box that is predicted some voxels to the side of where it is."""
    labels = torch.zeros(shape, dtype=torch.long)
    labels[2:4, 10:16, 12:20] = 1
    probability = torch.full((2, *shape), 1 - sure)
    probability.scatter_(0, labels.roll(shift, dims=2)[None], sure)
    return Case(name, name, probability, labels, (5.0, 2.0, 1.0))
