"""What is written about an image: maps on its own grid, and whatever else is hooked in."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import ndimage

from crac.data import Geometry, Volume
from crac.data.nifti import write_channels
from crac.functional.arrays import in_steps
from crac.models.planes import Planes
from crac.models.predictor import Piece, Prediction

DType = Literal["float32", "float16", "uint8"]
MAPS: dict[str, Callable[[Prediction], NDArray[Any]]] = {
    "label": lambda prediction: prediction.labels[None],
    "confidence": lambda prediction: prediction.confidence[None],
    "entropy": lambda prediction: prediction.entropy[None],
    "probabilities": lambda prediction: prediction.probabilities,
}
"""Name of a map -> its values ``(C, x, y, z)`` for a piece of a prediction."""
STEPS = 255
"""A byte holds probabilities in steps of 1/255."""


class Target(NamedTuple):
    """The image that is being written about.

    Attributes:
        name: What its files begin with.
        out: Where they go.
        like: Affine and header for maps on its grid; the array is empty.
        geometry: Its grid: ``shape`` and ``spacing`` along ``(X, Y, Z)``.
        axis: The axis of the image along which pieces follow each other.
        class_names: Index = class, 0 the background.
    """

    name: str
    out: Path
    like: Volume
    geometry: Geometry
    axis: int
    class_names: tuple[str, ...]


class Writing(Protocol):
    """What is being written about one image."""

    def add(self, piece: Piece) -> None:
        """Take one plane of the calibrated probabilities, on the image's own grid.

        Called once for every plane, in order along the target's axis, upwards or downwards; ``piece.where`` says which
        voxels it holds. The whole is never in memory: keep sums, or the few bytes a voxel needs.
        """

    def finish(self) -> None:
        """Write the files, each whole or not at all; called after the last plane."""


class Output(Protocol):
    """Something that is written about every image: the place to hook in what is made of its probabilities."""

    @property
    def name(self) -> str:
        """What it is called in ``prediction.json``."""

    def settings(self) -> dict[str, Any]:
        """What its files depend on beside model and image; files of other settings are not taken for finished."""

    def files(self, name: str) -> list[str]:
        """The files about the image ``name``, all of which are there once it is finished."""

    def begin(self, target: Target) -> Writing:
        """Start on an image."""


@dataclass(frozen=True)
class Map:
    """One of :data:`MAPS`, as ``NAME_kind.nii.gz``.

    Args:
        name: Which.
        dtype: How probabilities are stored. ``float16`` rounds them to half precision, but NIfTI has no such type: the
            file's are 32 bits, half of them 0, which compress to nothing. ``uint8`` holds steps of 1/255 and the factor
            that readers multiply with; the most probable class makes up for rounding, so that sums stay 1.
        largest_component: Keep only the largest connected part of each class of the label, touching corners included;
            the others become background.
    """

    name: str
    dtype: DType = "float32"
    largest_component: bool = False

    def settings(self) -> dict[str, Any]:
        """What the file depends on."""
        if self.name == "label":
            return {"largest_component": self.largest_component}
        return {"dtype": self.dtype}

    def files(self, name: str) -> list[str]:
        """The one file."""
        return [f"{name}_{self.name}.nii.gz"]

    def begin(self, target: Target) -> "MapWriting":
        """Start on an image."""
        return MapWriting(self, target)


class MapWriting:
    """A map that grows; its planes are kept in a file where they are larger than memory should be.

    Args:
        of: Which map.
        target: The image it is about.
    """

    def __init__(self, of: Map, target: Target) -> None:
        self.of, self.target = of, target
        stored = torch.uint8 if of.name == "label" else getattr(torch, of.dtype)
        x, y, z = target.geometry.shape
        planes, *plane = np.moveaxis(np.empty((x, y, z, 0)), target.axis, 0).shape[:3]
        channels = len(target.class_names) if of.name == "probabilities" else 1
        self._planes = Planes((channels, planes, *plane), stored, torch.device("cpu"), target.out)

    def add(self, piece: Piece) -> None:
        """Take one plane."""
        values = MAPS[self.of.name](piece.prediction)
        if self.of.name != "label" and self.of.dtype == "uint8":
            many = len(values) > 1
            values = in_steps(values, STEPS, values.argmax(0)) if many else np.rint(values * np.float32(STEPS))
            values = values.astype(np.uint8)
        turned = np.ascontiguousarray(np.moveaxis(values, self.target.axis + 1, 1))
        self._planes.write(piece.where[self.target.axis].start, torch.from_numpy(turned))

    def finish(self) -> None:
        """Write the file."""
        (file,) = self.of.files(self.target.name)
        shape: tuple[int, ...] = self.target.geometry.shape
        if self.of.name == "probabilities":
            shape = *shape, len(self.target.class_names)
        elif self._flat():
            shape = shape[:2]
        label = self.of.name == "label"
        scaled = self.of.dtype == "uint8" and not label
        dtype = np.uint8 if label or scaled else np.float32
        slope = 1 / STEPS if scaled else 1.0
        write_channels(self.target.out / file, self._channels(), shape, dtype, self.target.like, slope)
        self._planes.close()

    def _flat(self) -> bool:
        """Whether the image is a single slice without a third axis; its maps stay such."""
        return len(self.target.like.header.get_data_shape()) == 2

    def _channels(self) -> Iterator[NDArray[Any]]:
        for number in range(self._planes.shape[0]):
            channel = np.moveaxis(self._planes.channel(number).numpy(), 0, self.target.axis)
            if self.of.name == "label" and self.of.largest_component:
                keep_largest(channel)
            yield channel[..., 0] if self._flat() and self.of.name != "probabilities" else channel


def keep_largest(labels: NDArray[np.uint8]) -> None:
    """Make background of all but the largest connected part of every class, in place; corners connect."""
    for value, box in enumerate(ndimage.find_objects(labels), start=1):
        if box is None:
            continue
        inside = labels[box] == value
        parts, number = ndimage.label(inside, structure=np.ones((3,) * labels.ndim))
        if number > 1:
            largest = np.bincount(parts[inside]).argmax()
            labels[box][inside & (parts != largest)] = 0
