"""What is measured: one labelled volume, and sets of them that are loaded one at a time; slices of one to look at."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from crac import guarantees

Bytes = NDArray[np.uint8]


class Case(NamedTuple):
    """What a model says about one volume, and what is true.

    Attributes:
        name: Name of the volume.
        patient: The patient it shows.
        scores: ``(K, *S)`` probabilities, or logits.
        labels: ``(*S)`` integers, on the device of the scores.
        spacing: Millimetres between voxels along each axis of ``S``.
        from_logits: Whether ``scores`` are logits.
        slice_axis: Axis of ``S`` along which slices follow each other; by default that of :func:`slice_axis`.
        ignore_index: Label of voxels that nobody has labelled, if there is one.
    """

    name: str
    patient: str
    scores: Tensor
    labels: Tensor
    spacing: Sequence[float]
    from_logits: bool = False
    slice_axis: int | None = None
    ignore_index: int | None = None

    @property
    def probabilities(self) -> Tensor:
        """``(K, *S)``, whatever the scores are."""
        return self.scores.softmax(0) if self.from_logits else self.scores

    @property
    def for_guarantees(self) -> guarantees.Case:
        """The case as guarantees take it."""
        return guarantees.Case(self.probabilities, self.labels, self.spacing, self.patient, self.ignore_index)

    @property
    def axis(self) -> int:
        """The axis along which slices follow each other: the one that was said, or :func:`slice_axis`."""
        if self.slice_axis is not None:
            return self.slice_axis
        return slice_axis(self.spacing, self.labels.shape)


def single_slice(shape: Sequence[int]) -> int | None:
    """Return the axis along which there is one voxel only; None if there is no such axis, or more than one."""
    single = [axis for axis, length in enumerate(shape) if length == 1]
    return single[0] if len(single) == 1 else None


def slice_axis(spacing: Sequence[float], shape: Sequence[int]) -> int:
    """Return the axis of a single slice, else that of the largest spacing; of several alike but for rounding, the last.

    Args:
        spacing: Millimetres between voxels along each axis.
        shape: Voxels along each axis.
    """
    single = single_slice(shape)
    if single is not None:
        return single
    largest = max(spacing)
    return max(axis for axis, side in enumerate(spacing) if side > largest * (1 - 1e-4))


class CaseSource(Protocol):
    """A set of cases; other processes load theirs from a pickled copy."""

    @property
    def names(self) -> Sequence[str]:
        """Names of the cases."""

    @property
    def on_gpu(self) -> bool:
        """Whether cases are loaded onto a GPU, which other processes then leave alone."""

    def load(self, name: str) -> Case:
        """Bring one case into memory."""


class LoadedCases:
    """Cases that are in memory already.

    Args:
        cases: All of them, with different names.
    """

    on_gpu = False

    def __init__(self, cases: Iterable[Case]) -> None:
        self._cases = {case.name: case for case in cases}
        self.names = list(self._cases)

    def load(self, name: str) -> Case:
        """The case of that name."""
        return self._cases[name]


class RememberedCases:
    """Cases of another source, each loaded once and kept, as far as memory is meant for it; the others load anew.

    Args:
        cases: The source.
        most: Bytes to keep.
    """

    def __init__(self, cases: CaseSource, most: int = 2**31) -> None:
        self.names, self.on_gpu = cases.names, cases.on_gpu
        self._cases, self._free = cases, most
        self._kept: dict[str, Case] = {}

    def load(self, name: str) -> Case:
        """The case of that name."""
        if name in self._kept:
            return self._kept[name]
        case = self._cases.load(name)
        size = case.scores.nbytes + case.labels.nbytes
        if size <= self._free:
            self._free -= size
            self._kept[name] = case
        return case


class View(NamedTuple):
    """Slices of one case, the right way up.

    Attributes:
        name: Name of the volume.
        which: Why it is shown: ``worst`` or ``middle``.
        dsc: Its Dice.
        aspect: Height of a pixel divided by its width.
        slices: Numbers of the slices in the volume, from 0.
        label: ``(slices, rows, columns)`` classes.
        prediction: Predicted classes.
        confidence: Probability of the predicted class, 255 being 1.
        image: Intensities, 0 to 255 between two percentiles; empty where there is no image.
    """

    name: str
    which: str
    dsc: float
    aspect: float
    slices: list[int]
    label: Bytes
    prediction: Bytes
    confidence: Bytes
    image: Bytes
