"""Light augmentation of a batch on its own device: flip, rotation, scale, intensity."""

import math
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from crac.data.recipe import Strict


class Augmentation(Strict):
    """Random changes, drawn for each image of a batch; all within the slice plane.

    Args:
        flip: Probability of mirroring along H, and along W.
        rotation: Largest angle in degrees, either way.
        scale: Largest relative change of size, either way.
        intensity: Largest change of brightness (added) and of contrast (relative), either way.
    """

    flip: Annotated[float, Field(ge=0, le=1)] = 0.5
    rotation: Annotated[float, Field(ge=0, le=180)] = 15.0
    scale: Annotated[float, Field(ge=0, lt=1)] = 0.1
    intensity: Annotated[float, Field(ge=0, lt=1)] = 0.1

    def __call__(self, images: Tensor, labels: Tensor, seed: int) -> tuple[Tensor, Tensor]:
        """Change images ``(B, C, *S)`` and their labels ``(B, *S)`` alike; outside the image there is 0 and background.

        The same seed gives the same changes on every device.
        """
        # Drawn on the CPU: generators of other devices give other numbers.
        generator = torch.Generator().manual_seed(seed)
        batch = len(images)
        mirror = 1 - 2 * (torch.rand(2, batch, generator=generator) < self.flip).float()
        angle, size, brightness, contrast = 2 * torch.rand(4, batch, generator=generator) - 1
        angle = angle * math.radians(self.rotation)
        size = 1 + size * self.scale
        height, width = images.shape[-2:]
        matrix = torch.zeros(batch, 2, 3)
        # Grid coordinates run over -1..1 whatever the shape: rotation needs the aspect put back.
        matrix[:, 0, 0] = mirror[0] * angle.cos() / size
        matrix[:, 0, 1] = -mirror[0] * angle.sin() / size * height / width
        matrix[:, 1, 0] = mirror[1] * angle.sin() / size * width / height
        matrix[:, 1, 1] = mirror[1] * angle.cos() / size
        flat = images.flatten(1, -3)
        grid = F.affine_grid(matrix.to(images.device), [batch, 1, height, width], align_corners=False)
        moved = F.grid_sample(flat, grid, mode="bilinear", padding_mode="zeros", align_corners=False)
        flat_labels = labels.reshape(batch, -1, height, width).float()
        moved_labels = F.grid_sample(flat_labels, grid, mode="nearest", padding_mode="zeros", align_corners=False)
        view = (batch, *[1] * (moved.ndim - 1))
        brightness, contrast = (
            (self.intensity * value).view(view).to(images.device) for value in (brightness, contrast)
        )
        moved = moved * (1 + contrast) + brightness
        return moved.reshape(images.shape), moved_labels.reshape(labels.shape).to(labels.dtype)
