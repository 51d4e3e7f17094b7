"""Two random views of a batch, and the way back: what ``bwcr`` compares.

All that is left to chance are the numbers of :func:`draw_views`; the rest is computed from them on the device of the
images, without waiting for it. Volumes are moved in the plane of their slices.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from crac.data.augment import between, resample

ROTATION, TRANSLATION, SHEAR = 20.0, 10.0, 5.0
"""Largest rotation and shear in degrees, largest translation in pixels."""

SCALE, GAMMA, GAIN, OFFSET, NOISE = (0.75, 1.25), (0.5, 2.0), (0.9, 1.1), (-0.1, 0.1), (0.01, 0.1)
SMOOTHING = (1 / 16, 4 / 16, 6 / 16, 4 / 16, 1 / 16)
"""Binomial kernel, a Gaussian of one pixel; blur and sharpening remove and add what it takes away."""

MOVES, CHANGES = 5, 6
"""How many properties of a view are drawn: of its transform, and of its intensities."""


@dataclass(frozen=True)
class View:
    """An affine transform of each image of a batch.

    Args:
        forward: ``(B, 2, 3)``: where in the slice a pixel ``(x, y)`` of the view comes from; both axes run from -1
            to 1.
        backward: The inverse.
    """

    forward: Tensor
    backward: Tensor

    def apply(self, images: Tensor) -> Tensor:
        """The view of images ``(B, C, *S)``; outside the image it is 0."""
        return resample(images, self.forward, "bilinear")

    def apply_labels(self, labels: Tensor) -> Tensor:
        """The view of class indices ``(B, *S)``; outside the image it is background."""
        return resample(labels.unsqueeze(1).float(), self.forward, "nearest").squeeze(1).round().long()

    def invert(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Logits ``(B, K, *S)`` of the view back on the images' grid, and which pixels ``(B, *S)`` the view shows."""
        seen = resample(torch.ones_like(logits[:, :1]), self.backward, "bilinear").squeeze(1) > 0.999
        return resample(logits, self.backward, "bilinear"), seen


def draw_views(images: Tensor, generator: Generator) -> tuple[Tensor, Tensor]:
    """Return the random numbers of two views of images ``(B, C, *S)``.

    Returns:
        Uniform numbers ``(2, 11, 2, B)``, of each property whether it changes and how much, and noise
        ``(2, B, C, *S)``.
    """
    device = generator.device
    numbers = torch.rand(2, MOVES + CHANGES, 2, len(images), device=device, generator=generator)
    return numbers, torch.randn(2, *images.shape, device=device, generator=generator)


def make_view(images: Tensor, numbers: Tensor, noise: Tensor) -> tuple[View, Tensor]:
    """Return a view, to map labels and logits with, and images ``(B, C, *S)`` as it shows them, in other intensities.

    The numbers ``(11, 2, B)`` and the noise ``(B, C, *S)`` are those of :func:`draw_views`.
    """
    height, width = images.shape[-2:]
    view = _make_transform(numbers[:MOVES], height, width)
    return view, _change_intensity(view.apply(images), numbers[MOVES:], noise)


def _between(numbers: Tensor, low: float, high: float, neutral: float) -> Tensor:
    """``(B,)`` values between ``low`` and ``high``, each with probability one half, else ``neutral``."""
    return between(numbers[0], numbers[1], low, high, neutral)


def _make_transform(numbers: Tensor, height: int, width: int) -> View:
    """Shear, then rotate, scale and shift pixel coordinates around the centre."""
    turn, slant = math.radians(ROTATION), math.radians(SHEAR)
    angle, shear = _between(numbers[0], -turn, turn, 0), _between(numbers[1], -slant, slant, 0).tan()
    scale = _between(numbers[2], *SCALE, 1)
    x, y = (_between(one, -TRANSLATION, TRANSLATION, 0) for one in numbers[3:5])
    cos, sin = angle.cos(), angle.sin()
    # Written out: a product of matrices may be computed in TF32, which would move pixels.
    forward = scale * cos, scale * (cos * shear - sin), scale * sin, scale * (sin * shear + cos)
    back = (cos + sin * shear) / scale, (sin - cos * shear) / scale, -sin / scale, cos / scale
    home = -(back[0] * x + back[1] * y), -(back[2] * x + back[3] * y)
    return View(_in_units(*forward, x, y, height, width), _in_units(*back, *home, height, width))


def _in_units(xx: Tensor, xy: Tensor, yx: Tensor, yy: Tensor, x: Tensor, y: Tensor, height: int, width: int) -> Tensor:
    """``(B, 2, 3)``: the transform ``[[xx, xy, x], [yx, yy, y]]`` of pixels where each axis runs from -1 to 1."""
    rows = [xx, xy * (height / width), x * (2 / width), yx * (width / height), yy, y * (2 / height)]
    return torch.stack(rows, -1).view(-1, 2, 3)


def _change_intensity(images: Tensor, numbers: Tensor, noise: Tensor) -> Tensor:
    axes = [1] * (images.ndim - 1)

    def between(number: int, low: float, high: float, neutral: float) -> Tensor:
        return _between(numbers[number], low, high, neutral).view(-1, *axes)

    images = images.clamp(min=1e-6) ** between(0, *GAMMA, 1)
    images = images * between(1, *GAIN, 1) + between(2, *OFFSET, 0)
    images = images - between(3, 0, 1, 0) * _detail(images)
    images = images + between(4, 0, 1, 0) * _detail(images)
    return images + between(5, *NOISE, 0) * noise


def _detail(images: Tensor) -> Tensor:
    """What smoothing takes away, in the plane of the slices."""
    flat = images.flatten(0, -3).unsqueeze(1)
    kernel = _kernel(images.device, images.dtype)
    flat = F.pad(flat, (2, 2, 2, 2), mode="replicate")
    smooth = F.conv2d(F.conv2d(flat, kernel.view(1, 1, 1, 5)), kernel.view(1, 1, 5, 1))
    return images - smooth.view_as(images)


@lru_cache
def _kernel(device: torch.device, dtype: torch.dtype) -> Tensor:
    """Made once: bringing numbers to a GPU waits for it."""
    return torch.tensor(SMOOTHING, device=device, dtype=dtype)
