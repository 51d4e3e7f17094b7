"""Two random views of a batch, and the way back: what ``bwcr`` compares.

Everything is drawn and computed on the device of the images. Volumes are moved in the plane of their slices.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

__all__ = ["View", "draw_view"]

ROTATION, TRANSLATION, SHEAR = 20.0, 10.0, 5.0
"""Largest rotation and shear in degrees, largest translation in pixels."""

SCALE, GAMMA, GAIN, OFFSET, NOISE = (0.75, 1.25), (0.5, 2.0), (0.9, 1.1), (-0.1, 0.1), (0.01, 0.1)
SMOOTHING = (1 / 16, 4 / 16, 6 / 16, 4 / 16, 1 / 16)
"""Binomial kernel, a Gaussian of one pixel; blur and sharpening remove and add what it takes away."""


@dataclass(frozen=True)
class View:
    """An affine transform of each image of a batch.

    Args:
        forward: ``(B, d, d + 1)``: where in the image a pixel of the view comes from, in ``grid_sample``'s units.
        backward: The inverse.
    """

    forward: Tensor
    backward: Tensor

    def apply(self, images: Tensor) -> Tensor:
        """The view of images ``(B, C, *S)``; outside the image it is 0."""
        return _sample(images, self.forward, "bilinear")

    def apply_labels(self, labels: Tensor) -> Tensor:
        """The view of class indices ``(B, *S)``; outside the image it is background."""
        return _sample(labels.unsqueeze(1).float(), self.forward, "nearest").squeeze(1).round().long()

    def invert(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Logits ``(B, K, *S)`` of the view back on the images' grid, and which pixels ``(B, *S)`` the view shows."""
        seen = _sample(torch.ones_like(logits[:, :1]), self.backward, "bilinear").squeeze(1) > 0.999
        return _sample(logits, self.backward, "bilinear"), seen


def draw_view(images: Tensor, generator: Generator) -> tuple[View, Tensor]:
    """A random view and the images as it shows them, with random changes of intensity.

    Args:
        images: ``(B, C, *S)``, in 0..1.
        generator: On the device of the images.

    Returns:
        The view, to map labels and logits with, and the changed images.
    """
    batch, _, *size = images.shape
    matrix = _in_plane(_draw_matrix(batch, generator), size)
    view = View(matrix[:, :-1], torch.linalg.inv(matrix)[:, :-1])
    return view, _draw_intensity(view.apply(images), generator)


def _maybe(batch: int, low: float, high: float, neutral: float, generator: Generator) -> Tensor:
    """``(B,)`` values between ``low`` and ``high``, each with probability one half, else ``neutral``."""
    values = torch.rand(2, batch, device=generator.device, generator=generator)
    return torch.where(values[0] < 0.5, low + (high - low) * values[1], neutral)


def _draw_matrix(batch: int, generator: Generator) -> Tensor:
    """``(B, 3, 3)`` transforms of pixel coordinates around the centre, ``(x, y, 1)``."""
    angle = _maybe(batch, -math.radians(ROTATION), math.radians(ROTATION), 0, generator)
    shear = _maybe(batch, -math.radians(SHEAR), math.radians(SHEAR), 0, generator).tan()
    scale = _maybe(batch, *SCALE, 1, generator)
    shift_x, shift_y = (_maybe(batch, -TRANSLATION, TRANSLATION, 0, generator) for _ in range(2))
    zero, one = torch.zeros_like(angle), torch.ones_like(angle)
    rotation = torch.stack([angle.cos(), -angle.sin(), zero, angle.sin(), angle.cos(), zero, zero, zero, one], -1)
    slant = torch.stack([one, shear, zero, zero, one, zero, zero, zero, one], -1)
    rest = torch.stack([scale, zero, shift_x, zero, scale, shift_y, zero, zero, one], -1)
    return rest.view(-1, 3, 3) @ rotation.view(-1, 3, 3) @ slant.view(-1, 3, 3)


def _in_plane(matrix: Tensor, size: list[int]) -> Tensor:
    """``(B, d + 1, d + 1)``: the transform of the last two axes in units where each axis runs from -1 to 1."""
    height, width = size[-2:]
    half = matrix.new_tensor([width / 2, height / 2, 1])
    plane = matrix * half / half[:, None]
    full = torch.eye(len(size) + 1, device=matrix.device).repeat(len(matrix), 1, 1)
    full[:, :2, :2] = plane[:, :2, :2]
    full[:, :2, -1] = plane[:, :2, 2]
    return full


def _sample(images: Tensor, matrix: Tensor, mode: str) -> Tensor:
    grid = F.affine_grid(matrix.to(images.dtype), list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, mode=mode, align_corners=False)


def _draw_intensity(images: Tensor, generator: Generator) -> Tensor:
    batch, axes = len(images), [1] * (images.ndim - 1)

    def maybe(low: float, high: float, neutral: float) -> Tensor:
        return _maybe(batch, low, high, neutral, generator).view(-1, *axes)

    images = images.clamp(min=1e-6) ** maybe(*GAMMA, 1)
    images = images * maybe(*GAIN, 1) + maybe(*OFFSET, 0)
    images = images - maybe(0, 1, 0) * _detail(images)
    images = images + maybe(0, 1, 0) * _detail(images)
    noise = torch.randn(images.shape, device=generator.device, generator=generator)
    return images + maybe(*NOISE, 0) * noise


def _detail(images: Tensor) -> Tensor:
    """What smoothing takes away, in the plane of the slices."""
    flat = images.flatten(0, -3).unsqueeze(1)
    kernel = flat.new_tensor(SMOOTHING)
    flat = F.pad(flat, (2, 2, 2, 2), mode="replicate")
    smooth = F.conv2d(F.conv2d(flat, kernel.view(1, 1, 1, 5)), kernel.view(1, 1, 5, 1))
    return images - smooth.view_as(images)
