"""Random changes of a batch on its own device: how images lie, and how bright, sharp and noisy they are.

All that is left to chance are uniform numbers, some for each image; the rest is computed from them without waiting for
the device and with shapes that depend on the batch alone, so that a CUDA graph can record it. Two helpers,
:func:`between` and :func:`resample`, also serve the views of ``bwcr``.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Annotated, Literal, Self

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from crac.data.recipe import Strict
from crac.errors import one_of

NUMBERS = 32
"""Uniform numbers that decide what happens to one image."""

ANISOTROPIC = 3.0
"""From this ratio of spacings on, volumes are changed within their slices only, as nnU-Net does."""

Chance = Annotated[float, Field(ge=0, le=1)]
Part = Annotated[float, Field(ge=0, lt=1)]


class Augmentation(Strict):
    """Random changes, drawn for each image of a batch; each range may be 0, or 1 for a factor, to leave it alone.

    Args:
        flip: Probability of mirroring along each axis.
        moves: Probability of each of the four following.
        rotation: Largest angle in degrees, either way, in every plane.
        scale: Largest relative change of size, either way.
        shear: Largest angle in degrees, either way.
        shift: Largest shift along each axis, either way, as a share of the side.
        changes: Probability of each of the seven following.
        contrast: Largest relative change of the distance to the image's mean, either way.
        gain: Largest relative change of all intensities, either way.
        brightness: Largest number added, either way; intensities run from 0 to 1.
        gamma: Largest exponent; the smallest is its inverse.
        blur: Largest standard deviation of a Gaussian, in voxels.
        low_resolution: Largest factor by which the grid is made coarser and brought back.
        noise: Largest standard deviation of Gaussian noise.
        spacing: Millimetres along the axes of a volume, so that angles are right angles in space.
    """

    flip: Chance = 0.0
    moves: Chance = 1.0
    rotation: Annotated[float, Field(ge=0, le=180)] = 0.0
    scale: Part = 0.0
    shear: Annotated[float, Field(ge=0, le=45)] = 0.0
    shift: Part = 0.0
    changes: Chance = 1.0
    contrast: Part = 0.0
    gain: Part = 0.0
    brightness: Part = 0.0
    gamma: Annotated[float, Field(ge=1, le=10)] = 1.0
    blur: Annotated[float, Field(ge=0, le=5)] = 0.0
    low_resolution: Annotated[float, Field(ge=1, le=8)] = 1.0
    noise: Part = 0.0
    spacing: tuple[Annotated[float, Field(gt=0)], ...] = (1.0, 1.0, 1.0)

    @classmethod
    def named(
        cls, strength: Literal["light", "strong"], mirror: bool = False, spacing: Sequence[float] = (1.0, 1.0, 1.0)
    ) -> Self:
        """Return the changes of a strength, mirrored half of the time if that is asked for."""
        if strength not in STRENGTHS:
            raise one_of("augment", strength, STRENGTHS)
        return cls(**STRENGTHS[strength], flip=mirror / 2, spacing=tuple(spacing))

    def __call__(self, images: Tensor, labels: Tensor, numbers: Tensor) -> tuple[Tensor, Tensor]:
        """Change images ``(B, C, *S)`` and their labels ``(B, *S)`` alike; outside the image there is 0 and background.

        What happens is decided by the ``numbers`` ``(B, 32)``, uniform in 0..1 and on the device of the images: the
        same numbers give the same changes, up to rounding, on every device. Labels are never mixed: one that marks
        voxels to ignore stays what it is.
        """
        chance = iter(numbers.to(images.dtype).unbind(1))
        images, labels = self._mirrored(images, labels, chance)
        images, labels = self._moved(images, labels, chance)
        return self._changed(images, chance), labels

    def _axes(self, images: Tensor) -> list[int]:
        """Return the axes that are mixed with each other: all, or those of the slices where these lie far apart."""
        dims = images.ndim - 2
        spacing = self.spacing[-dims:]
        return [-2, -1] if max(spacing) >= ANISOTROPIC * min(spacing) else list(range(-dims, 0))

    def _mirrored(self, images: Tensor, labels: Tensor, chance: Iterator[Tensor]) -> tuple[Tensor, Tensor]:
        for axis in (-1, -2, -3):
            flag = next(chance) < self.flip
            if self.flip and axis >= 2 - images.ndim:
                images = torch.where(_spread(flag, images), images.flip(axis), images)
                labels = torch.where(_spread(flag, labels), labels.flip(axis), labels)
        return images, labels

    def _moved(self, images: Tensor, labels: Tensor, chance: Iterator[Tensor]) -> tuple[Tensor, Tensor]:
        turn, slant = math.radians(self.rotation), math.radians(self.shear)
        lots = [next(chance) for _ in range(14)]

        def draw(whether: int, how_much: int, low: float, high: float, neutral: float = 0) -> Tensor:
            return between(lots[whether], lots[how_much], low, high, neutral, self.moves)

        angles = [draw(0, 1 + plane, -turn, turn) for plane in range(3)]
        size = draw(4, 5, 1 - self.scale, 1 + self.scale, 1)
        slants = [draw(6, 7 + plane, -slant, slant).tan() for plane in range(3)]
        shifts = [draw(10, 11 + axis, -2 * self.shift, 2 * self.shift) for axis in range(3)]
        if not (self.rotation or self.scale or self.shear or self.shift):
            return images, labels
        axes = self._axes(images)
        count = len(axes)
        eye = torch.eye(count, count + 1, device=images.device, dtype=images.dtype)
        linear = eye[:, :count].repeat(len(images), 1, 1)
        # The plane of the slices comes first: the last two axes, x and y in the grid's order.
        for plane, (first, second) in enumerate([(0, 1), (0, 2), (1, 2)][: count * (count - 1) // 2]):
            slanted, turned = (eye[:, :count].repeat(len(images), 1, 1) for _ in range(2))
            slanted[:, first, second] = slants[plane]
            turned[:, first, first] = turned[:, second, second] = angles[plane].cos()
            turned[:, first, second], turned[:, second, first] = -angles[plane].sin(), angles[plane].sin()
            linear = _product(turned, _product(slanted, linear))
        # Grid coordinates run over -1..1 whatever the extent in millimetres, which is put back here.
        extent = [images.shape[axis] * self.spacing[axis] for axis in reversed(axes)]
        columns = [
            torch.stack([linear[:, row, column] * (one / other) / size for row, other in enumerate(extent)], 1)
            for column, one in enumerate(extent)
        ]
        matrix = torch.stack([*columns, torch.stack(shifts[:count], 1)], 2)
        grid = sampling_grid(images, matrix)
        moved = sample(images, grid, "bilinear")
        moved_labels = sample(labels.unsqueeze(1).to(images.dtype), grid, "nearest").squeeze(1).to(labels.dtype)
        # What is not moved keeps every intensity: interpolation would round it.
        still = (matrix == eye).flatten(1).all(1)
        images = torch.where(_spread(still, images), images, moved)
        return images, torch.where(_spread(still, labels), labels, moved_labels)

    def _changed(self, images: Tensor, chance: Iterator[Tensor]) -> Tensor:
        def draw(low: float, high: float, neutral: float) -> Tensor:
            amount = between(next(chance), next(chance), low, high, neutral, self.changes)
            return _spread(amount, images)

        blur, coarse = draw(0, self.blur, 0), draw(1, self.low_resolution, 1)
        contrast, gain = draw(-self.contrast, self.contrast, 0), draw(-self.gain, self.gain, 0)
        brightness = draw(-self.brightness, self.brightness, 0)
        exponent = draw(-math.log(self.gamma), math.log(self.gamma), 0).exp()
        noise, key = draw(0, self.noise, 0), next(chance)
        axes = self._axes(images)
        if self.blur:
            images = _where(blur > 0, partial(_blurred, radius=math.ceil(3 * self.blur), axes=axes), images, blur)
        if self.low_resolution > 1:
            images = _where(coarse > 1, partial(_coarsened, axes=axes), images, coarse)
        if self.gamma > 1:
            images = _where(exponent != 1, _bent, images, exponent)
        if self.contrast:
            mean = images.mean(tuple(range(2, images.ndim)), keepdim=True)
            images = images + contrast * (images - mean)
        if self.gain or self.brightness:
            images = images * (1 + gain) + brightness
        if self.noise:
            images = _where(noise > 0, _noisy, images, noise, key)
        return images


STRENGTHS = {
    "light": {"rotation": 15, "scale": 0.1, "gain": 0.1, "brightness": 0.1},
    "strong": {
        "moves": 0.5, "rotation": 30, "scale": 0.25, "shear": 5, "shift": 0.05, "changes": 0.25, "contrast": 0.25,
        "gain": 0.25, "brightness": 0.1, "gamma": 1.5, "blur": 1.0, "low_resolution": 2.0, "noise": 0.05,
    },
}  # fmt: skip
"""Light is what the committed trials were run with; strong has about the ranges and chances of nnU-Net."""


def between(whether: Tensor, how_much: Tensor, low: float, high: float, neutral: float, chance: float = 0.5) -> Tensor:
    """Return of uniform numbers: a value between ``low`` and ``high`` with probability ``chance``, else ``neutral``."""
    return torch.where(whether < chance, low + (high - low) * how_much, neutral)


def resample(images: Tensor, matrix: Tensor, mode: Literal["bilinear", "nearest"]) -> Tensor:
    """Return images ``(B, C, *S)`` whose pixels come from where an affine transform points, 0 from outside.

    The matrix ``(B, n, n + 1)`` maps coordinates (x, y[, z]) that run from -1 to 1 along each of the last ``n`` axes;
    with ``n = 2`` all slices of a volume move alike.
    """
    return sample(images, sampling_grid(images, matrix), mode)


def sampling_grid(images: Tensor, matrix: Tensor) -> Tensor:
    """Return where the pixels of :func:`resample` come from, ``(B, *S, n)``."""
    count = matrix.shape[1]
    # Sums of products, written out: a product of matrices may be computed in TF32, which would move pixels.
    places = []
    for axis in range(1, count + 1):
        side = images.shape[-axis]
        place = (torch.arange(side, device=images.device, dtype=images.dtype) * 2 + 1) / side - 1
        places.append(place.view(-1, *[1] * (axis - 1)))
    rows = matrix.to(images.dtype).view(len(matrix), count, count + 1, *[1] * count).unbind(1)
    return torch.stack(
        [sum((row[:, axis] * place for axis, place in enumerate(places)), row[:, count]) for row in rows], -1
    )


def sample(images: Tensor, grid: Tensor, mode: Literal["bilinear", "nearest"]) -> Tensor:
    """Return images whose pixels come from the places of a grid, 0 from outside."""
    flat = images.flatten(1, -1 - grid.shape[-1])
    return F.grid_sample(flat, grid, mode=mode, align_corners=False).view_as(images)


def _spread(values: Tensor, like: Tensor) -> Tensor:
    """Return values ``(B,)`` with as many axes as ``like`` has."""
    return values.view(-1, *[1] * (like.ndim - 1))


def _where(needed: Tensor, change: Callable[..., Tensor], images: Tensor, *amounts: Tensor) -> Tensor:
    """Change images by amounts ``(B, ...)`` that leave the others, where none is ``needed``, as they are.

    A GPU is not asked which these are, for that would wait for it; a CPU does not compute them.
    """
    if not _may_look(images):
        return change(images, *amounts)
    rows = needed.flatten().nonzero().flatten()
    if not len(rows):
        return images
    return images.index_copy(0, rows, change(images[rows], *(amount[rows] for amount in amounts)))


def _may_look(images: Tensor) -> bool:
    """Whether values can be read without waiting for a device."""
    return images.device.type == "cpu"


def _bent(images: Tensor, exponent: Tensor) -> Tensor:
    """Return images to the power of exponents ``(B, 1, ...)``; what is not above 0 stays."""
    return torch.where(images > 0, images.clamp(min=0) ** exponent, images)


def _noisy(images: Tensor, deviation: Tensor, key: Tensor) -> Tensor:
    """Return images with noise of standard deviations ``(B, 1, ...)``, decided by keys ``(B,)``."""
    return images + deviation * _normal(key, images)


def _product(first: Tensor, second: Tensor) -> Tensor:
    """Return the product of small matrices, in full precision."""
    return (first.unsqueeze(-1) * second.unsqueeze(-3)).sum(-2)


def _blurred(images: Tensor, sigma: Tensor, radius: int, axes: Sequence[int]) -> Tensor:
    """Return images smoothed by Gaussians of standard deviations ``(B, 1, ...)``; 0 leaves them as they are."""
    weights = [torch.exp(-0.5 * (offset / sigma.clamp(min=1e-2)) ** 2) for offset in range(radius + 1)]
    total = weights[0] + 2 * sum(weights[1:], torch.zeros_like(sigma))
    for axis in axes:
        side = images.shape[axis]
        place = torch.arange(side, device=images.device)
        smooth = weights[0] * images
        for offset in range(1, radius + 1):
            before, after = (place - offset).clamp(min=0), (place + offset).clamp(max=side - 1)
            smooth = smooth + weights[offset] * (images.index_select(axis, before) + images.index_select(axis, after))
        images = smooth / total
    return images


def _coarsened(images: Tensor, factor: Tensor, axes: Sequence[int]) -> Tensor:
    """Return images read on grids coarser by ``(B, 1, ...)`` and interpolated back; 1 leaves them as they are."""
    for axis in axes:
        side, after = images.shape[axis], -1 - axis
        place = torch.arange(side, device=images.device, dtype=images.dtype).view(-1, *[1] * after)
        coarse = (place + 0.5) / factor - 0.5
        low = coarse.floor()
        first, second = (
            images.gather(axis, ((one + 0.5) * factor - 0.5).round().clamp(0, side - 1).long().expand_as(images))
            for one in (low, low + 1)
        )
        images = first + (coarse - low) * (second - first)
    return images


def _normal(key: Tensor, images: Tensor) -> Tensor:
    """Return normal numbers in the shape of the images, those of each image decided by its key ``(B,)`` in 0..1.

    A hash of key and place, the finaliser of MurmurHash3 twice: the same numbers on every device, for any batch size.
    """
    bits = torch.arange(images[0].numel(), device=images.device).view(1, *images.shape[1:])
    bits = _hash(bits + _hash(_spread((key.double() * 2**31).long(), images)))
    uniform = ((bits >> 9).to(images.dtype) + 0.5) / 2**23
    return torch.erfinv(2 * uniform - 1) * math.sqrt(2)


def _hash(bits: Tensor) -> Tensor:
    """Return 32 bits, in int64, in which every bit depends on every bit given."""
    bits = bits & 0xFFFFFFFF
    bits = ((bits ^ (bits >> 16)) * 0x85EBCA6B) & 0xFFFFFFFF
    bits = ((bits ^ (bits >> 13)) * 0xC2B2AE35) & 0xFFFFFFFF
    return bits ^ (bits >> 16)
