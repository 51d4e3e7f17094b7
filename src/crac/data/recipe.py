"""Preprocessing recipes: plain constants, applied to an image and inverted from its geometry alone.

An image on its own grid has axes ``(X, Y, Z)`` as NIfTI stores them; a prepared one has ``(D, H, W)``,
``D`` the slices. A recipe orients, resamples, then crops or pads around the centre.
"""

from collections.abc import Sequence
from typing import Annotated, Any, Literal, Self

import nibabel as nib
import numpy as np
import torch
from nibabel.affines import voxel_sizes
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, model_validator

from crac.data.grid import Shape, check_size, resample, resample_labels, window
from crac.data.restore import Restoration
from crac.errors import InputError, checked

Size = Annotated[int, Field(ge=1, le=2**15)]
Millimetres = Annotated[float, Field(gt=0, le=1e4)]
Row = tuple[float, float, float, float]
Dims = Literal[2, 3]
"""2 for slices, 3 for volumes."""


class Strict(BaseModel):
    """A record that cannot be changed and refuses unknown keys, NaN and infinity."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Geometry(Strict):
    """The grid of an input image: all that is needed to bring a prediction back to it.

    Args:
        shape: Voxels along ``(X, Y, Z)``.
        affine: Voxel to millimetre matrix, exactly the input's.
    """

    shape: tuple[Size, Size, Size]
    affine: tuple[Row, Row, Row, Row]

    @classmethod
    def of(cls, shape: Sequence[int], affine: NDArray[np.float64]) -> Self:
        """Return the geometry of an array with this shape and affine."""
        content = {"shape": list(shape), "affine": np.asarray(affine, dtype=np.float64).tolist()}
        return checked(cls, content, "the grid of the image")

    @property
    def spacing(self) -> tuple[float, float, float]:
        """Millimetres between voxels along ``(X, Y, Z)``."""
        x, y, z = voxel_sizes(np.array(self.affine)).tolist()
        return x, y, z


class Intensity(Strict):
    """How one channel is scaled to 0..1; what lies outside the range is clipped.

    Args:
        method: ``percentile``: the range is between two percentiles of the image itself (0 and 100: min-max);
            ``window``: it is the same for every image, in the image's units (CT).
        low: Lower end, in percent or units.
        high: Upper end.
    """

    method: Literal["percentile", "window"]
    low: float
    high: float

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if not self.low < self.high:
            raise ValueError(f"low must be below high; got {self.low} and {self.high}")
        if self.method == "percentile" and not 0 <= self.low < self.high <= 100:
            raise ValueError(f"percentiles must lie in 0..100; got {self.low} and {self.high}")
        return self

    def apply(self, channel: NDArray[np.float32]) -> NDArray[np.float32]:
        """Scale a whole volume; a constant one becomes 0."""
        if self.method == "window":
            low, high = self.low, self.high
        elif (self.low, self.high) == (0, 100):
            low, high = float(channel.min()), float(channel.max())
        else:
            low, high = map(float, np.percentile(channel, (self.low, self.high)))
        if high <= low:
            return np.zeros_like(channel)
        scaled = np.empty_like(channel)
        source, target = (np.moveaxis(array, int(np.argmax(channel.strides)), 0) for array in (channel, scaled))
        for plane in range(len(source)):  # one at a time: volumes are large
            # In double precision: the range of two float32 extremes may not fit into float32.
            target[plane] = np.clip((source[plane].astype(np.float64) - low) / (high - low), 0, 1)
        return scaled


class Recipe(Strict):
    """From an image on its own grid to the prepared grid ``(D, H, W)``, and back.

    Args:
        name: Which recipe this is.
        orientation: ``stored`` leaves the axes as the file has them; ``canonical`` first turns them to the
            closest right-anterior-superior orientation.
        slice_axis: The axis (after orientation) that becomes ``D``.
        size: Voxels along ``(D, H, W)`` after resampling; None leaves an axis alone.
        spacing: Millimetres along ``(D, H, W)`` after resampling, instead of a size; None leaves an axis alone.
        crop: Voxels along ``(D, H, W)`` kept around the centre, padded where there are fewer; None keeps all.
        intensity: One scaling a channel.
    """

    name: str
    orientation: Literal["stored", "canonical"]
    slice_axis: Literal[0, 1, 2] = 2
    size: tuple[Size | None, Size | None, Size | None] = (None, None, None)
    spacing: tuple[Millimetres | None, Millimetres | None, Millimetres | None] = (None, None, None)
    crop: tuple[Size | None, Size | None, Size | None] = (None, None, None)
    intensity: tuple[Intensity, ...] = Field(min_length=1)

    def apply(self, image: NDArray[np.float32], affine: NDArray[np.float64]) -> tuple[NDArray[np.float32], Geometry]:
        """Prepare an image.

        Args:
            image: ``(C, X, Y, Z)``.
            affine: Its voxel to millimetre matrix.

        Returns:
            The prepared image ``(C, D, H, W)``, in 0..1, and the geometry that inverts it.
        """
        if image.ndim != 4 or image.shape[0] != len(self.intensity):
            expected = f"({len(self.intensity)}, X, Y, Z)"
            raise InputError(f"image must have shape {expected} for recipe {self.name}; got {image.shape}")
        geometry = Geometry.of(image.shape[1:], affine)
        shape = self.resampled_shape(geometry)
        prepared = []
        for scale, channel in zip(self.intensity, image, strict=True):  # one by one: volumes are large
            turned = torch.from_numpy(self._turn(scale.apply(channel)[None], geometry))
            prepared.append(self.cut(resample(turned, shape).numpy()))
        return prepared[0] if len(prepared) == 1 else np.concatenate(prepared), geometry

    def resample_label(self, label: NDArray[np.uint8], geometry: Geometry) -> NDArray[np.uint8]:
        """Orient and resample class indices ``(X, Y, Z)`` to ``(D, H, W)``; :meth:`cut` completes the preparation."""
        return resample_labels(self._turn(label[None], geometry)[0], self.resampled_shape(geometry))

    def invert(self, array: NDArray[Any], geometry: Geometry) -> NDArray[Any]:
        """Bring a prediction back to the input's grid.

        Args:
            array: Class indices ``(D, H, W)``, or probabilities ``(K, D, H, W)``, in the prepared grid. Outside
                the crop every voxel is background.
            geometry: Grid of the image that was prepared.

        Returns:
            ``(X, Y, Z)`` uint8 or ``(K, X, Y, Z)`` float32.
        """
        if array.shape[-3:] != self.prepared_shape(geometry) or array.ndim not in (3, 4):
            raise InputError(f"array must end in {self.prepared_shape(geometry)}; got shape {array.shape}")
        if array.ndim == 4:
            probabilities = torch.from_numpy(np.ascontiguousarray(array, dtype=np.float32))
            return self.restoration(geometry).whole(probabilities).numpy()
        resampled = self.resampled_shape(geometry)
        depth, height, width = (geometry.shape[axis] for axis in self.axes(geometry)[0])
        full = np.zeros(resampled, dtype=np.uint8)
        read, fill = self._windows(resampled)
        full[read] = array[fill]
        return self._turn_back(resample_labels(full, (depth, height, width))[None], geometry).squeeze(0)

    def restoration(self, geometry: Geometry) -> Restoration:
        """What brings probabilities back to the grid of an image, plane by plane."""
        return Restoration(geometry.shape, *self.axes(geometry), self.resampled_shape(geometry), self.crop)

    def prepared_shape(self, geometry: Geometry) -> Shape:
        """Voxels along ``(D, H, W)`` of an image with this geometry once prepared."""
        resampled = self.resampled_shape(geometry)
        return self.crop[0] or resampled[0], self.crop[1] or resampled[1], self.crop[2] or resampled[2]

    def prepared_spacing(self, geometry: Geometry) -> tuple[float, float, float]:
        """Millimetres along ``(D, H, W)`` of an image with this geometry once prepared."""
        sizes = zip(self.axes(geometry)[0], self.resampled_shape(geometry), strict=True)
        depth, height, width = (geometry.spacing[axis] * geometry.shape[axis] / after for axis, after in sizes)
        return depth, height, width

    def slice_axis_of(self, geometry: Geometry) -> int:
        """The axis of an input with this geometry along which its slices follow each other."""
        return self.axes(geometry)[0][0]

    def axes(self, geometry: Geometry) -> tuple[list[int], list[int]]:
        """Which input axis becomes each of ``(D, H, W)``, and which input axes are flipped."""
        order = [self.slice_axis, *(axis for axis in (2, 1, 0) if axis != self.slice_axis)]
        if self.orientation == "stored":
            return order, []
        orientation = nib.io_orientation(np.array(geometry.affine))
        source_of = np.argsort(orientation[:, 0])
        return [int(source_of[axis]) for axis in order], [axis for axis in range(3) if orientation[axis, 1] < 0]

    def _turn(self, array: NDArray[Any], geometry: Geometry) -> NDArray[Any]:
        order, flips = self.axes(geometry)
        turned = np.flip(array, tuple(axis + 1 for axis in flips)).transpose(0, *(axis + 1 for axis in order))
        return turned.copy()  # `ascontiguousarray` leaves an axis of one voxel flipped, which torch refuses

    def _turn_back(self, array: NDArray[Any], geometry: Geometry) -> NDArray[Any]:
        order, flips = self.axes(geometry)
        turned = array.transpose(0, *(int(axis) + 1 for axis in np.argsort(order)))
        return np.flip(turned, tuple(axis + 1 for axis in flips)).copy()

    def resampled_shape(self, geometry: Geometry) -> Shape:
        """Voxels along ``(D, H, W)`` of an image with this geometry after resampling, before it is cropped."""

        def voxels(axis: int, size: int | None, spacing: float | None) -> int:
            before = geometry.shape[axis]
            return size or (before if spacing is None else max(1, round(before * geometry.spacing[axis] / spacing)))

        depth, height, width = map(voxels, self.axes(geometry)[0], self.size, self.spacing)
        check_size((depth, height, width))
        return depth, height, width

    def _windows(self, resampled: Sequence[int]) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
        pairs = [window(voxels, crop or voxels) for voxels, crop in zip(resampled, self.crop, strict=True)]
        return tuple(read for read, _ in pairs), tuple(fill for _, fill in pairs)

    def cut(self, array: NDArray[Any]) -> NDArray[Any]:
        """Crop or pad a resampled ``(C, D, H, W)`` around its centre."""
        if all(crop in (None, voxels) for crop, voxels in zip(self.crop, array.shape[1:], strict=True)):
            return array
        read, fill = self._windows(array.shape[1:])
        shape = [crop or voxels for crop, voxels in zip(self.crop, array.shape[1:], strict=True)]
        out = np.zeros((len(array), *shape), dtype=array.dtype)
        out[(slice(None), *fill)] = array[(slice(None), *read)]
        return out
