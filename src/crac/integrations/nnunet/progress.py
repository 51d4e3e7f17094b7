"""One more panel under nnU-Net's ``progress.png``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

__all__ = ["add_panel"]


def add_panel(path: Path, history: Mapping[str, Sequence[float]], prefix: str) -> None:
    """Append the curves whose key starts with ``prefix/`` to the picture, as wide as the picture is.

    nnU-Net draws its picture anew each epoch and offers no room for other curves; appending pixels leaves its
    drawing alone.

    Args:
        path: The picture, which must exist.
        history: nnU-Net's log: key -> one value per epoch.
        prefix: Which keys to draw, e.g. ``"lambda"``.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from PIL import Image

    with Image.open(path) as picture:
        above = picture.convert("RGB")
    dpi = 100
    figure = Figure(figsize=(above.width / dpi, 18), dpi=dpi, layout="tight")
    axes = figure.subplots()
    for key, values in history.items():
        if key.startswith(f"{prefix}/"):
            axes.plot(values, label=key.removeprefix(f"{prefix}/"), linewidth=4, ls="-" if "inner" in key else "--")
    axes.set(yscale="log")
    axes.set_xlabel("epoch", fontsize=25)
    axes.set_ylabel(prefix, fontsize=25)
    axes.tick_params(labelsize=25)
    axes.legend(fontsize=20, ncols=4, loc="lower left", bbox_to_anchor=(0, 1))
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    below = np.asarray(canvas.buffer_rgba())[..., :3]
    part = path.with_name(f".{path.name}.part")
    Image.fromarray(np.vstack([np.asarray(above), below])).save(part, format="PNG")
    part.replace(path)
