"""One more panel under nnU-Net's ``progress.png``."""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from crac.files import replacing
from crac.palette import LINES

DPI = 100
LONGEST_LEGEND = 24


def add_panel(path: Path, curves: Mapping[tuple[str, str], Sequence[float]]) -> None:
    """Append curves of ``lambda`` to the picture, as wide as the picture is.

    nnU-Net draws its picture anew each epoch and offers no room for other curves; appending pixels leaves its
    drawing alone.

    Args:
        path: The picture, which must exist.
        curves: ``(region, class) -> one value per epoch``. Regions differ by line style, classes by colour.
    """
    from matplotlib.figure import Figure
    from PIL import Image

    with Image.open(path) as picture:
        above = np.asarray(picture.convert("RGB"))
    figure = Figure(figsize=(above.shape[1] / DPI, 18), dpi=DPI, layout="tight")
    axes = figure.subplots()
    regions = list(dict.fromkeys(region for region, _ in curves))
    classes = list(dict.fromkeys(label for _, label in curves))
    for (region, label), values in curves.items():
        style, colour = LINES[regions.index(region) % len(LINES)], f"C{classes.index(label)}"
        axes.plot(values, label=f"{label}, {region}", linewidth=4, ls=style, color=colour)
    axes.set_yscale("log")
    axes.set_xlabel("epoch", fontsize=30)
    axes.set_ylabel("lambda", fontsize=30)
    axes.tick_params(labelsize=25)
    if len(curves) <= LONGEST_LEGEND:
        axes.legend(fontsize=25, ncols=4, loc="lower left", bbox_to_anchor=(0, 1))
    rendered = io.BytesIO()
    figure.savefig(rendered, format="png")
    below = np.asarray(Image.open(rendered).convert("RGB"))
    with replacing(path) as partial:
        Image.fromarray(np.vstack([above, below])).save(partial, format="PNG")
