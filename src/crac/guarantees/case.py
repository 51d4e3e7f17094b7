"""Calibration cases: a volume of probabilities beside its labels, read a slab at a time."""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from crac.errors import InputError
from crac.functional.arrays import Array, as_tensor
from crac.functional.patches import check_integers
from crac.guarantees.counts import Index, LabelCounts, VolumeCounter
from crac.metrics.counts import RANGE_TOLERANCE, SUM_TOLERANCE

SLAB = 2**20
"""Voxels at a time: a volume is never copied as a whole."""


class UnlabelledError(InputError):
    """A case without a voxel that somebody has labelled: nothing can be learned from it."""


class Case(NamedTuple):
    """What a model says about one volume, and what is true.

    Attributes:
        probabilities: ``(K, *S)``, the background first; a tensor or an array of any floating-point type, 2-D or 3-D.
        labels: ``(*S)`` integers.
        spacing: Millimetres between voxels along each axis of ``S``.
        patient: The patient it shows. Volumes of one patient count as one; without a name it is a patient of
            its own.
        ignore_index: Label of voxels that nobody has labelled, if there are any: they do not count.
    """

    probabilities: Array
    labels: Array
    spacing: Sequence[float]
    patient: str | None = None
    ignore_index: int | None = None


class Volume(NamedTuple):
    """Probabilities ``(K, *S)`` and the millimetres between voxels, checked; nothing is copied."""

    probabilities: Array
    spacing: tuple[float, ...]

    @property
    def voxel(self) -> float:
        """Size of a voxel: in millilitres, in 2-D in square centimetres."""
        return math.prod(side / 10 for side in self.spacing)

    def slabs(self) -> Iterator[tuple[Index, Tensor]]:
        """Indices into ``S`` and the probabilities there, checked, ``(K, V)`` in ``float32`` on the CPU."""
        for index in _indices(self.probabilities):
            values = _taken(self.probabilities, (slice(None), *index)).flatten(1)
            _check_values(values)
            yield index, values

    def counted(self, entropy: bool = False) -> VolumeCounter:
        """Count what the probabilities say by themselves."""
        counter = VolumeCounter(len(self.probabilities), self.probabilities.shape[1:], entropy)
        for index, values in self.slabs():
            counter.add(index, values)
        return counter


class LabelledVolume(NamedTuple):
    """A case, checked and counted.

    Attributes:
        volume: What the model says.
        labels: ``(*S)``.
        patient: The patient it shows.
        ignored: ``(*S)``, the voxels that nobody has labelled; None if there are none.
        own: Counts of the probabilities.
        counts: Counts of probabilities and labels together.
    """

    volume: Volume
    labels: NDArray[np.integer[Any]]
    patient: str
    ignored: NDArray[np.bool_] | None
    own: VolumeCounter
    counts: LabelCounts


def check_volume(probabilities: Array, spacing: Sequence[float], num_classes: int) -> Volume:
    """Refuse what is no volume of probabilities for ``num_classes`` classes, but for the values."""
    shape = tuple(probabilities.shape)
    floating = (
        probabilities.is_floating_point() if isinstance(probabilities, Tensor) else probabilities.dtype.kind == "f"
    )
    if not floating or len(shape) not in (3, 4) or shape[0] != num_classes or min(shape) < 1:
        raise InputError(
            f"probabilities must be floating point of shape ({num_classes}, *S), S 2 or 3 sizes; "
            f"got {probabilities.dtype} of shape {shape}"
        )
    sides = tuple(float(side) for side in spacing) if isinstance(spacing, Iterable) else ()
    if len(sides) != len(shape) - 1 or not all(0 < side < math.inf for side in sides):
        raise InputError(f"spacing must be {len(shape) - 1} positive numbers, in millimetres; got {spacing!r}")
    return Volume(probabilities, sides)


def check_case(case: Case, num_classes: int, patient: str) -> LabelledVolume:
    """The case, counted, if it is sound; ``patient`` is its name if it has none.

    Raises:
        UnlabelledError: All its voxels have the ``ignore_index``.
        InputError: Something is wrong with it.
    """
    volume = check_volume(case.probabilities, case.spacing, num_classes)
    given = as_tensor(case.labels).cpu()
    check_integers(given)
    labels, shape = given.numpy(), tuple(case.probabilities.shape[1:])
    if labels.shape != shape:
        raise InputError(f"labels must have shape {shape} to match the probabilities; got {labels.shape}")
    ignored = None if case.ignore_index is None else labels == case.ignore_index
    ignored = None if ignored is None or not ignored.any() else ignored
    own, counts = VolumeCounter(num_classes, shape), LabelCounts.zeros(num_classes)
    for index, values in volume.slabs():
        winner, drawn = own.add(index, values), torch.from_numpy(labels[index].astype(np.int32).reshape(-1))
        if ignored is not None:
            known = torch.from_numpy(~ignored[index].reshape(-1))
            values, winner, drawn = values[:, known], winner[known], drawn[known]
        _check_labels(drawn, num_classes)
        counts.add(values, winner, drawn)
    if not counts.pairs.any():
        raise UnlabelledError(f"labels must hold voxels that somebody has labelled; all are {case.ignore_index}")
    return LabelledVolume(volume, labels, patient if case.patient is None else str(case.patient), ignored, own, counts)


def _check_values(values: Tensor) -> None:
    low, high, least = (float(end) for end in (*values.sum(0).aminmax(), values.amin()))
    if not (1 - SUM_TOLERANCE < low <= high < 1 + SUM_TOLERANCE and least > -RANGE_TOLERANCE):
        raise InputError(
            "probabilities must be finite, not negative, and sum to 1 over the classes; "
            f"got sums from {low:.4g} to {high:.4g} and values from {least:.4g}"
        )


def _check_labels(labels: Tensor, num_classes: int) -> None:
    low, high = (int(end) for end in labels.aminmax()) if len(labels) else (0, 0)
    if low < 0 or high >= num_classes:
        raise InputError(
            f"labels must lie in 0..{num_classes - 1}, or be the ignore_index of the case; "
            f"got {low if low < 0 else high}"
        )


def like(result: Tensor, given: Array) -> Array:
    """The result as what was given: an array for an array, else a tensor on the same device."""
    return result.to(given.device) if isinstance(given, Tensor) else result.numpy()


def _indices(probabilities: Array) -> Iterator[Index]:
    """Slabs along the axis that is slowest in memory."""
    shape = probabilities.shape[1:]
    steps = probabilities.stride()[1:] if isinstance(probabilities, Tensor) else probabilities.strides[1:]
    axis = max(range(len(shape)), key=lambda each: (abs(steps[each]), -each))
    planes = max(1, SLAB * shape[axis] // math.prod(shape))
    for start in range(0, shape[axis], planes):
        yield (*[slice(None)] * axis, slice(start, start + planes))


def _taken(values: Array, index: Index) -> Tensor:
    if isinstance(values, Tensor):
        return values[index].detach().cpu().float()
    return torch.from_numpy(np.array(values[index], dtype=np.float32))
