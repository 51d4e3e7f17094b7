"""Slices of cases as pictures inside a page."""

import base64
import io
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crac.errors import require
from crac.evaluation.case import View
from crac.evaluation.views import IGNORED

BUDGET = 7_000_000
"""Bytes that all pictures of a page may take together."""

LEVELS = 5
"""Confidence is kept in steps of so many 255ths: finer ones cannot be seen and do not compress."""


def pictures(views: Sequence[View]) -> list[dict[str, Any]]:
    """Return what the page needs to draw each view; where they would be too large, every other slice is left out."""
    kept = list(views)
    while True:
        drawn = [_drawn(view) for view in kept]
        if sum(len(one["maps"]) + len(one["image"] or "") for one in drawn) <= BUDGET:
            return drawn
        kept = [_thinned(view) for view in kept]


def _drawn(view: View) -> dict[str, Any]:
    confidence = (view.confidence.astype(np.int16) + LEVELS // 2) // LEVELS * LEVELS
    maps = np.stack([view.label, view.prediction, confidence.clip(0, 255).astype(np.uint8)], -1)
    number, rows, columns = view.label.shape
    numbers, wrong = [index + 1 for index in view.slices], (view.label != view.prediction) & (view.label != IGNORED)
    return {
        "rows": rows,
        "columns": columns,
        "aspect": view.aspect,
        "slices": numbers,
        "start": numbers[int(wrong.sum((1, 2)).argmax())],
        "maps": _uri(maps.reshape(number * rows, columns, 3), "png"),
        "image": _uri(view.image.reshape(number * rows, columns), "webp") if view.image.size else None,
    }


def _uri(array: NDArray[np.uint8], kind: str) -> str:
    """Slices under each other: labels and predictions are kept exactly, images as well as the eye sees them."""
    file = io.BytesIO()
    picture = require("PIL.Image").fromarray(array)
    if kind == "png":
        picture.save(file, "PNG", optimize=True)
    else:
        picture.save(file, "WEBP", quality=82)
    return f"data:image/{kind};base64,{base64.b64encode(file.getvalue()).decode()}"


def _thinned(view: View) -> View:
    if len(view.slices) > 1:
        return view._replace(
            slices=view.slices[::2], label=view.label[::2], prediction=view.prediction[::2],
            confidence=view.confidence[::2], image=view.image[::2],
        )  # fmt: skip
    return view._replace(
        label=view.label[:, ::2, ::2], prediction=view.prediction[:, ::2, ::2],
        confidence=view.confidence[:, ::2, ::2], image=view.image[:, ::2, ::2],
    )  # fmt: skip
