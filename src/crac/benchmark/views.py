"""What the figures of a benchmark need of the test volumes."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from crac.data import Store
from crac.data.upright import Upright
from crac.evaluation import Case

LOGIT_RANGE, LOGIT_BINS = (-40.0, 40.0), 160


class Views:
    """What the figures need of the test volumes: histograms of their logits, a slice of the best and of the worst.

    Args:
        store: Where the images are.

    Attributes:
        winning: Histogram of the winning class's logits, over the voxels labelled foreground.
        other: The same of the other classes' logits.
        slices: ``best_`` and ``worst_`` name, dsc, aspect, image, label, prediction and confidence.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self.winning, self.other = np.zeros((2, LOGIT_BINS), dtype=np.int64)
        self.slices: dict[str, NDArray[Any]] = {}

    def __call__(self, case: Case, row: dict[str, Any]) -> None:
        """Take in one volume."""
        shown = (case.labels > 0) & (case.labels != self.store.ignore_index)
        ordered = case.scores[:, shown].sort(0, descending=True).values
        self.winning += _histogram(ordered[:1])
        self.other += _histogram(ordered[1:])
        score = float(row["dsc"])
        best, worst = (self.slices.get(f"{which}_dsc", default) for which, default in (("best", -1), ("worst", 2)))
        for which, better in (("best", score > best), ("worst", score < worst)):
            if better:  # never for NaN, the score of a volume without foreground
                self.slices |= {f"{which}_{name}": array for name, array in self._slice(case, score).items()}

    def _slice(self, case: Case, score: float) -> dict[str, NDArray[Any]]:
        """Return the slice with most foreground, the right way up, in bytes."""
        index = int((case.labels > 0).sum((1, 2)).argmax())
        confidence, prediction = case.scores[:, index : index + 1].softmax(0).max(0)
        image = np.array(self.store.image(case.name)[0, index : index + 1], dtype=np.float32)
        upright = Upright.prepared(self.store.manifest.recipe)
        arrays = {
            "image": 255 * image.clip(0, 1),
            "label": case.labels[index : index + 1].cpu().numpy(),
            "prediction": prediction.cpu().numpy(),
            "confidence": (255 * confidence).round().cpu().numpy(),
        }
        slices = {name: upright.turn(array)[0].astype(np.uint8) for name, array in arrays.items()}
        aspect = upright.aspect(self.store.cases[case.name].prepared_spacing)
        return {"name": np.array(case.name), "dsc": np.array(score), "aspect": np.array(aspect), **slices}


def _histogram(values: Tensor) -> NDArray[np.int64]:
    """Count values in ``LOGIT_BINS`` bins; those outside the range are counted at its ends."""
    low, high = LOGIT_RANGE
    place = ((values.flatten() - low) * (LOGIT_BINS / (high - low))).long().clamp(0, LOGIT_BINS - 1)
    counts: NDArray[np.int64] = torch.bincount(place, minlength=LOGIT_BINS).cpu().numpy()
    return counts
