"""Slices with what each model says and how sure it is."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from crac.data import Store
from crac.files import replacing
from crac.models.model import Model
from crac.palette import PALETTE, pyplot


def draw_slices(store: Store, names: Sequence[str], models: Mapping[str, Model], path: Path, rows: int = 3) -> None:
    """Write a PNG that shows the middle slice of cases in ``names``, the first of each patient, ``rows`` at most.

    Each row has the image with its labels, then how sure each of the ``models``, by name, is.
    """
    plt = pyplot()
    firsts = list({store.cases[name].patient: name for name in reversed(names)}.values())[::-1][:rows]
    size = len(firsts), 1 + len(models)
    figure, axes = plt.subplots(*size, figsize=(3 * size[1], 3 * size[0]), layout="constrained", squeeze=False)
    drawn = None
    for row, name in zip(axes, firsts, strict=True):
        image, label = np.array(store.image(name), dtype=np.float32), np.array(store.label(name))
        middle = label.shape[0] // 2
        window = _around(label[middle])
        row[0].imshow(image[0, middle][window], cmap="gray")
        for number in range(1, store.num_classes):
            mask = label[middle][window] == number
            if mask.any() and not mask.all():
                row[0].contour(mask, levels=[0.5], colors=[PALETTE[number % len(PALETTE)]], linewidths=1.2)
        row[0].set_ylabel(name)
        for axis, model in zip(row[1:], models.values(), strict=True):
            confidence = model.predict_prepared(torch.from_numpy(image))[:, middle].amax(0).numpy()
            drawn = axis.imshow(confidence[window], cmap="viridis", vmin=0.4, vmax=1)
        for axis in row:
            axis.set(xticks=[], yticks=[])
    for axis, title in zip(axes[0], ["image and labels", *(f"{name}: confidence" for name in models)], strict=True):
        axis.set_title(title)
    figure.colorbar(drawn, ax=axes[:, 1:], label="probability of the predicted class", shrink=0.6)
    with replacing(path) as partial:
        figure.savefig(partial, dpi=110)
    plt.close(figure)


def _around(labels: NDArray[Any], margin: int = 6) -> tuple[slice, ...]:
    """The part of a slice that holds foreground."""
    places = np.argwhere(labels > 0)
    if not len(places):
        return tuple(slice(0, size) for size in labels.shape)
    low, high = np.maximum(places.min(0) - margin, 0), places.max(0) + margin + 1
    return tuple(slice(first, last) for first, last in zip(low, high, strict=True))
