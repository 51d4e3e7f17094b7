"""Segmentations and confidence maps of the best and of the worst volume, from the slices a benchmark kept."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from crac.benchmark.scores import Group
from crac.errors import require
from crac.report.plots import PALETTE, STYLE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["draw_maps", "has_maps"]


def has_maps(group: Group, folder: Path) -> bool:
    """Whether any method's slices were kept."""
    return any(_path(folder, row.results[0].cell.name).exists() for row in group.rows)


def draw_maps(group: Group, folder: Path) -> Figure:
    """A row per method, of its first seed: outlines (label thin and white, prediction in colour) and confidence.

    Args:
        group: Whose methods.
        folder: Of ``CELL.npz`` files.
    """
    require("matplotlib").use("agg", force=False)
    plt = require("matplotlib.pyplot")
    rows = [row for row in group.rows if _path(folder, row.results[0].cell.name).exists()]
    with plt.rc_context(STYLE):
        figure: Figure
        figure, axes = plt.subplots(
            len(rows), 4, figsize=(8.4, 2.1 * len(rows) + 0.3), squeeze=False, layout="constrained"
        )
    for line, row in zip(axes, rows, strict=True):
        with np.load(_path(folder, row.results[0].cell.name), allow_pickle=False) as slices:
            for index, which in enumerate(("best", "worst")):
                parts = {name: slices[f"{which}_{name}"] for name in ("image", "label", "prediction", "confidence")}
                image, confidence = line[2 * index], line[2 * index + 1]
                image.imshow(parts["image"], cmap="gray", vmin=0, vmax=255)
                _outline(image, parts["label"], "white", 0.6, len(group.classes))
                _outline(image, parts["prediction"], None, 1.2, len(group.classes))
                shown = confidence.imshow(parts["confidence"] / 255, cmap="viridis", vmin=0.25, vmax=1)
                score, name = float(slices[f"{which}_dsc"]), str(slices[f"{which}_name"])
                image.set_title(f"{which}: {name}, DSC {score:.3f}", fontsize=7)
        line[0].set_ylabel(row.label, fontsize=8)
        for axis in line:
            axis.set(xticks=[], yticks=[])
    figure.colorbar(shown, ax=axes[:, -1], fraction=0.05, label="confidence")
    return figure


def _outline(axis: Any, labels: NDArray[np.uint8], colour: str | None, width: float, classes: int) -> None:
    for number in range(1, classes):
        mask = labels == number
        if mask.any() and not mask.all():
            axis.contour(mask, [0.5], colors=colour or PALETTE[number % len(PALETTE)], linewidths=width)


def _path(folder: Path, cell: str) -> Path:
    return folder / f"{cell}.npz"
