"""Calibration cases: a volume of probabilities beside its labels, read a slab at a time."""

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from crac.errors import InputError
from crac.functional.patches import check_integers
from crac.metrics.counts import RANGE_TOLERANCE, SUM_TOLERANCE

Array = Tensor | NDArray[Any]
Index = tuple[slice, ...]

SLAB = 2**20
"""Voxels at a time: a volume is never copied as a whole."""


class Case(NamedTuple):
    """What a model says about one volume, and what is true.

    Attributes:
        probabilities: ``(K, *S)``, the background first; a tensor or an array of any floating-point type, 2-D or 3-D.
        labels: ``(*S)`` integers.
        spacing: Millimetres between voxels along each axis of ``S``.
        patient: Whom it shows. Volumes of one patient count as one; without a name the volume is a patient of its own.
    """

    probabilities: Array
    labels: Array
    spacing: Sequence[float]
    patient: str | None = None


class LabelledCase(Protocol):
    """All that a guarantee needs to know of a case; :class:`Case` has it, and other classes may."""

    @property
    def probabilities(self) -> Array:
        """``(K, *S)``."""

    @property
    def labels(self) -> Array:
        """``(*S)``."""

    @property
    def spacing(self) -> Sequence[float]:
        """Millimetres between voxels."""

    @property
    def patient(self) -> str | None:
        """Whom the volume shows."""


class Volume(NamedTuple):
    """Probabilities ``(K, *S)`` and the millimetres between voxels, checked; nothing is copied."""

    probabilities: Array
    spacing: tuple[float, ...]

    @property
    def voxel(self) -> float:
        """Size of a voxel: in millilitres, in 2-D in square centimetres."""
        return math.prod(side / 10 for side in self.spacing)

    def slabs(self) -> Iterator[tuple[Index, Tensor]]:
        """Indices into ``S`` and the probabilities there, ``(K, V)`` in ``float32`` on the CPU."""
        for index in _indices(self.probabilities):
            yield index, _taken(self.probabilities, (slice(None), *index)).flatten(1)

    def winners(self) -> NDArray[np.uint16]:
        """The most probable class of every voxel, ``(*S)``."""
        out = np.empty(tuple(self.probabilities.shape[1:]), dtype=np.uint16)
        for index, values in self.slabs():
            part = out[index]
            part[...] = values.argmax(0).numpy().reshape(part.shape)
        return out


class LabelledVolume(NamedTuple):
    """A case, checked; ``patient`` is never ``None``."""

    volume: Volume
    labels: NDArray[np.integer[Any]]
    patient: str

    def slabs(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Probabilities ``(K, V)`` and labels ``(V,)``."""
        for index, values in self.volume.slabs():
            yield values, torch.from_numpy(self.labels[index].astype(np.int32).reshape(-1))


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
    sides = tuple(float(side) for side in spacing)
    if len(sides) != len(shape) - 1 or not all(0 < side < math.inf for side in sides):
        raise InputError(f"spacing must be {len(shape) - 1} positive numbers, in millimetres; got {tuple(spacing)!r}")
    return Volume(probabilities, sides)


def check_case(case: LabelledCase, num_classes: int, patient: str) -> LabelledVolume:
    """The case, if it is sound; ``patient`` is its name if it has none."""
    volume = check_volume(case.probabilities, case.spacing, num_classes)
    labels = case.labels.cpu() if isinstance(case.labels, Tensor) else torch.from_numpy(np.asarray(case.labels))
    check_integers(labels)
    shape = tuple(case.probabilities.shape[1:])
    if tuple(labels.shape) != shape:
        raise InputError(f"labels must have shape {shape} to match the probabilities; got {tuple(labels.shape)}")
    low, high = (int(end) for end in labels.aminmax())
    if low < 0 or high >= num_classes:
        raise InputError(
            f"labels must lie in 0..{num_classes - 1}, for guarantees need volumes that are labelled throughout; "
            f"got {low if low < 0 else high}"
        )
    for _, values in volume.slabs():
        total = values.sum(0)
        ends = [float(end) for end in (*total.aminmax(), values.amin())]
        if not (1 - SUM_TOLERANCE < ends[0] <= ends[1] < 1 + SUM_TOLERANCE and ends[2] > -RANGE_TOLERANCE):
            raise InputError(
                "probabilities must be finite, not negative, and sum to 1 over the classes; "
                f"got sums from {ends[0]:.4g} to {ends[1]:.4g} and values from {ends[2]:.4g}"
            )
    return LabelledVolume(volume, labels.numpy(), patient if case.patient is None else case.patient)


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
