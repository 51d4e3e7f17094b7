"""A picture of the prepared labels: does every contour lie where the eye sees an edge?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from crac.data.upright import Upright
from crac.files import replacing
from crac.palette import outline_colour, pyplot

if TYPE_CHECKING:
    from crac.data.store import Store


def contact_sheet(store: Store, path: Path, most: int = 24, columns: int = 6, dpi: int = 100) -> None:
    """Draw up to ``most`` cases, evenly chosen: the fullest slice, label contours on top."""
    plt = pyplot()
    names, upright = list(store.cases), Upright.prepared(store.manifest.recipe)
    chosen = [names[index] for index in np.unique(np.linspace(0, len(names) - 1, min(most, len(names))).astype(int))]
    columns = min(columns, len(chosen))
    rows = -(-len(chosen) // columns)
    figure = plt.figure(figsize=(1.9 * max(columns, 3), 2.1 * rows + 0.7), facecolor="black", layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for axis in axes:
        axis.set_axis_off()
    for axis, name in zip(axes, chosen, strict=False):
        label = store.label(name)
        # The slice that shows most classes and, among those, most foreground.
        index = int(np.argmax([len(np.unique(slice_)) + (slice_ > 0).mean() for slice_ in label]))
        slice_ = upright.turn(store.image(name)[0])[index].astype(np.float32)
        outline, aspect = upright.turn(label)[index], upright.aspect(store.cases[name].prepared_spacing)
        low, high = np.percentile(slice_, (1, 99.5))
        axis.imshow(slice_, cmap="gray", vmin=low, vmax=max(high, low + 1e-3), aspect=aspect)
        for value in np.unique(outline):
            # Matplotlib draws no contour in a single row or column of voxels.
            if value and value != store.ignore_index and min(outline.shape) > 1:
                axis.contour(outline == value, levels=[0.5], colors=outline_colour(int(value)), linewidths=0.9)
        axis.set_title(f"{name}  [{index}]", color="white", fontsize=6.5, pad=2)
    organs = enumerate(store.class_names[1:], start=1)
    handles = [plt.Line2D([], [], color=outline_colour(value), label=name) for value, name in organs]
    style = {"ncols": min(len(handles), 6), "fontsize": 8, "labelcolor": "white", "frameon": False}
    legend = figure.legend(handles=handles, loc="outside lower center", **style)
    legend.set_title(f"{store.name}: {len(chosen)} of {len(names)} cases, the fullest slice of each", prop={"size": 8})
    legend.get_title().set_color("white")
    with replacing(path) as partial:
        figure.savefig(partial, dpi=dpi)
    plt.close(figure)
