"""Cases to look at: slices of the worst and of a middle one, small enough to travel with the numbers."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from crac.data.upright import Upright
from crac.errors import InputError
from crac.evaluation.archive import read_arrays
from crac.evaluation.case import Bytes, CaseSource, View
from crac.evaluation.measure import Evaluation
from crac.files import replacing

CASES = "cases.npz"
"""File in the folder of an evaluation."""

MOST_SLICES, MOST_PIXELS = 40, 256
"""Slices kept of a case, and pixels along the longer side of one."""

IGNORED = 255
"""Label of voxels that are left out of every measure."""


class Look(NamedTuple):
    """What a picture of a case needs beside its probabilities.

    Attributes:
        image: ``(*S)`` intensities on the grid of the case, or None where there is no image.
        upright: How its volumes are turned.
    """

    image: NDArray[np.float32] | None
    upright: Upright


class SeenCases(CaseSource, Protocol):
    """Cases that can be looked at."""

    def look(self, name: str) -> Look:
        """Return the image of a case, and which way up it is shown."""


ARRAYS = ("label", "prediction", "confidence", "image")


def worst_and_middle(evaluation: Evaluation) -> dict[str, str]:
    """Return the volumes with the lowest and with the median Dice: name -> which of the two it is."""
    rows = sorted((row for row in evaluation.rows if row["dsc"] == row["dsc"]), key=lambda row: float(row["dsc"]))
    if not rows:
        return {}
    return {rows[len(rows) // 2]["volume"]: "middle", rows[0]["volume"]: "worst"}


def look_at(cases: SeenCases, evaluation: Evaluation, chosen: dict[str, str] | None = None) -> list[View]:
    """Load cases again and keep their slices, the worst first.

    Args:
        cases: What was measured.
        evaluation: The measurements.
        chosen: Name -> why it is shown; the worst and a middle case if not given.
    """
    chosen = worst_and_middle(evaluation) if chosen is None else chosen
    scores = {row["volume"]: float(row["dsc"]) for row in evaluation.rows}
    order = sorted(chosen, key=lambda name: scores[name])
    return [_view(cases, name, chosen[name], scores[name]) for name in order]


@torch.inference_mode()
def _view(cases: SeenCases, name: str, which: str, dsc: float) -> View:
    case, look = cases.load(name), cases.look(name)
    probabilities = case.probabilities
    confidence, prediction = probabilities.max(0)
    turn, labels = look.upright.turn, case.labels.cpu().numpy()
    arrays = {
        "label": turn(np.where((labels >= 0) & (labels < len(probabilities)), labels, IGNORED)).astype(np.uint8),
        "prediction": turn(prediction.cpu().numpy()).astype(np.uint8),
        "confidence": turn((255 * confidence.float().clamp(max=1)).round().cpu().numpy()).astype(np.uint8),
    }
    labelled = (arrays["label"] > 0) & (arrays["label"] != IGNORED)
    slices, rows, columns = _part(labelled | (arrays["prediction"] > 0), MOST_SLICES, MOST_PIXELS)
    kept = {key: np.ascontiguousarray(array[slices][:, rows, columns]) for key, array in arrays.items()}
    kept["image"] = np.zeros((0, 0, 0), dtype=np.uint8)
    if look.image is not None:
        kept["image"] = _to_bytes(turn(look.image)[slices][:, rows, columns])
    return View(name, which, dsc, look.upright.aspect(case.spacing), slices.tolist(), **kept)


def _part(foreground: NDArray[np.bool_], most_slices: int, most_pixels: int) -> tuple[NDArray[np.int64], slice, slice]:
    """The slices that show something and those next to them, and the rows and columns around it, thinned out."""
    places = np.argwhere(foreground)
    if not len(places):
        places = np.array([[0, 0, 0], [size - 1 for size in foreground.shape]])
    low, high = places.min(0), places.max(0) + 1
    margin = np.array([1, *np.maximum((high - low)[1:] // 3, 8)])
    low, high = np.maximum(low - margin, 0), np.minimum(high + margin, foreground.shape)
    numbers = np.unique(np.linspace(low[0], high[0] - 1, min(most_slices, high[0] - low[0])).round().astype(np.int64))
    step = max(1, -(-int((high - low)[1:].max()) // most_pixels))
    return numbers, slice(low[1], high[1], step), slice(low[2], high[2], step)


def _to_bytes(image: NDArray[np.float32]) -> Bytes:
    low, high = np.percentile(image, (0.5, 99.5))
    scaled = (np.asarray(image, dtype=np.float64) - low) / max(high - low, 1e-12)
    return np.asarray((255 * scaled.clip(0, 1)).round(), dtype=np.uint8)


def save_views(views: Sequence[View], path: Path) -> None:
    """Write slices to a compressed file."""
    about = [{k: v for k, v in view._asdict().items() if k not in ARRAYS} for view in views]
    arrays = {f"{number}.{name}": getattr(view, name) for number, view in enumerate(views) for name in ARRAYS}
    with replacing(path) as partial:
        np.savez_compressed(partial, allow_pickle=False, about=np.array(json.dumps(about)), **arrays)


def load_views(path: Path) -> list[View]:
    """Read slices back; none where there is no file."""
    if not path.is_file():
        return []
    file = read_arrays(path)
    try:
        about: list[dict[str, Any]] = json.loads(str(file["about"]))
        arrays: list[dict[str, Any]] = [
            {name: file[f"{number}.{name}"] for name in ARRAYS} for number in range(len(about))
        ]
        return [View(**one, **own) for one, own in zip(about, arrays, strict=True)]
    except (LookupError, TypeError, ValueError, RecursionError) as error:
        raise InputError(f"{path} is damaged: {error!r}") from error
