"""How well two segmentations agree: overlap and surface distances."""

import math
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from crac.errors import InputError, check_number, one_of
from crac.functional.arrays import Array, as_tensor
from crac.metrics.surface import surface_distances

Empty = Literal["nan", "zero", "diagonal"] | float
Definition = Literal["pooled", "directed_max"]
DEFINITIONS = ("pooled", "directed_max")
Distances = tuple[NDArray[np.float64], NDArray[np.float64]]


def dice(prediction: Array, labels: Array, num_classes: int, empty: Literal["nan"] | float = "nan") -> Tensor:
    """Dice coefficient of every class, background included.

    Args:
        prediction: Integers ``0..K-1`` of any shape.
        labels: Integers of the same shape.
        num_classes: ``K``.
        empty: The value of a class that neither holds: ``"nan"`` or a number.

    Returns:
        ``(K,)`` in ``float64``.

    Example:
        >>> dice(torch.tensor([0, 1, 1]), torch.tensor([0, 0, 1]), num_classes=2)
        tensor([0.6667, 0.6667], dtype=torch.float64)
    """
    if isinstance(empty, str) and empty != "nan":
        raise one_of("empty", empty, ("nan", "a number"))
    first, second = as_tensor(prediction), as_tensor(labels)
    if first.shape != second.shape:
        raise InputError(
            f"prediction and labels must have the same shape; got {tuple(first.shape)} and {tuple(second.shape)}"
        )
    for name, values in (("prediction", first), ("labels", second)):
        if values.is_floating_point():
            raise InputError(f"{name} must hold integers; got dtype {values.dtype}")
        if values.numel() and not 0 <= int(values.min()) <= int(values.max()) < num_classes:
            raise InputError(f"{name} must lie in 0..{num_classes - 1}; got {int(values.min())}..{int(values.max())}")
    pairs = torch.bincount(first.reshape(-1).long() * num_classes + second.reshape(-1), minlength=num_classes**2)
    table = pairs.view(num_classes, num_classes).double()
    total = table.sum(0) + table.sum(1)
    return torch.where(total > 0, 2 * table.diagonal() / total, float(empty))


class SurfaceScores(NamedTuple):
    """What is measured between the surfaces of two masks."""

    hd95: float
    average_surface_distance: float
    surface_dice: float


def surface_scores(
    prediction: Array,
    labels: Array,
    spacing: Sequence[float],
    tolerance: float = 1.0,
    definition: Definition = "pooled",
    empty: Empty = "nan",
) -> SurfaceScores:
    """:func:`hd95`, :func:`average_surface_distance` and :func:`surface_dice`, with one search for the distances.

    With an empty mask the surface Dice is NaN if ``empty`` is ``"nan"``, else 0.
    """
    if definition not in DEFINITIONS:
        raise one_of("definition", definition, DEFINITIONS)
    check_number("tolerance", tolerance, least=0)
    distances = _distances(prediction, labels, spacing, empty)
    if isinstance(distances, _Empty):
        share = math.nan if empty == "nan" else float(distances.both)
        return SurfaceScores(distances.value, distances.value, share)
    both = np.concatenate(distances)
    ways = (both,) if definition == "pooled" else distances
    percentile = max(float(np.percentile(way, 95)) for way in ways)
    return SurfaceScores(percentile, float(both.mean()), _near(both, tolerance))


def hd95(
    prediction: Array,
    labels: Array,
    spacing: Sequence[float],
    definition: Definition = "pooled",
    empty: Empty = "nan",
) -> float:
    """95th percentile of the Hausdorff distance between two masks.

    Args:
        prediction: Boolean mask of one class, 2-D or 3-D.
        labels: Boolean mask of the same shape.
        spacing: Size of a voxel along each axis; ones give the distance in voxels.
        definition: ``"pooled"``: the percentile of the distances both ways taken together, as in MedPy;
            ``"directed_max"``: the larger of the two ways' percentiles, as in MONAI.
        empty: What an empty mask gives: ``"nan"``; ``"zero"``; ``"diagonal"``, the length of the image's diagonal; or a
            number. If both masks are empty they agree: 0 unless ``"nan"``.

    Returns:
        The distance in the unit of ``spacing``.

    Example:
        >>> mask = torch.zeros(8, 8, dtype=torch.bool)
        >>> mask[2:5, 2:5] = True
        >>> hd95(mask.roll(2, dims=1), mask, spacing=(1.0, 0.5))
        1.0
    """
    return surface_scores(prediction, labels, spacing, definition=definition, empty=empty).hd95


def average_surface_distance(prediction: Array, labels: Array, spacing: Sequence[float], empty: Empty = "nan") -> float:
    """Mean distance between the surfaces of two masks: both ways taken together, as in MedPy and MONAI.

    Args:
        prediction: Boolean mask of one class, 2-D or 3-D.
        labels: Boolean mask of the same shape.
        spacing: Size of a voxel along each axis.
        empty: As in :func:`hd95`.
    """
    return surface_scores(prediction, labels, spacing, empty=empty).average_surface_distance


def surface_dice(
    prediction: Array,
    labels: Array,
    spacing: Sequence[float],
    tolerance: float,
    empty: Literal["nan", "zero"] | float = "nan",
) -> float:
    """Share of the two surfaces that lies within a tolerance of the other, surface voxels counted alike.

    Args:
        prediction: Boolean mask of one class, 2-D or 3-D.
        labels: Boolean mask of the same shape.
        spacing: Size of a voxel along each axis.
        tolerance: In the unit of ``spacing``.
        empty: What one empty mask gives: ``"nan"``, ``"zero"`` or a number. If both are empty: 1 unless ``"nan"``.
    """
    check_number("tolerance", tolerance, least=0)
    if isinstance(empty, str) and empty not in ("nan", "zero"):
        raise one_of("empty", empty, ("nan", "zero", "a number"))
    distances = _distances(prediction, labels, spacing, empty)
    if isinstance(distances, _Empty):
        return 1.0 if distances.both and empty != "nan" else distances.value
    return _near(np.concatenate(distances), tolerance)


def _near(distances: NDArray[np.float64], tolerance: float) -> float:
    """Share of distances up to the tolerance; one that equals it counts, whatever rounding makes of spacings."""
    return float((distances <= tolerance * (1 + 1e-6)).mean())


class _Empty(NamedTuple):
    """At least one mask is empty: the value the policy gives, and whether both are."""

    value: float
    both: bool


def _distances(prediction: Array, labels: Array, spacing: Sequence[float], empty: Empty) -> Distances | _Empty:
    """The distances both ways, or what the ``empty`` policy gives."""
    first, second = _mask("prediction", prediction), _mask("labels", labels)
    if first.shape != second.shape:
        raise InputError(f"prediction and labels must have the same shape; got {first.shape} and {second.shape}")
    size = [float(length) for length in spacing] if isinstance(spacing, Iterable) else []
    if len(size) != first.ndim or not all(0 < length < math.inf for length in size):
        raise InputError(f"spacing must be {first.ndim} positive numbers, one per axis; got {spacing!r}")
    if not (isinstance(empty, int | float) or empty in ("nan", "zero", "diagonal")):
        raise one_of("empty", empty, ("nan", "zero", "diagonal", "a number"))
    full = bool(first.any()), bool(second.any())
    if all(full):
        return surface_distances(first, second, size)
    both = not any(full)
    if empty == "nan":
        return _Empty(math.nan, both)
    if both or empty == "zero":
        return _Empty(0.0, both)
    if empty == "diagonal":
        return _Empty(math.hypot(*(length * number for length, number in zip(size, first.shape, strict=True))), both)
    return _Empty(float(empty), both)


def _mask(name: str, values: Array) -> NDArray[np.bool_]:
    mask = values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)
    if mask.dtype != np.bool_ or mask.ndim not in (2, 3):
        raise InputError(f"{name} must be a boolean mask with 2 or 3 axes; got {mask.dtype} with {mask.ndim}")
    return mask
