"""A model whose right answer is known, and images for it."""

from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import torch
from torch import Tensor, nn

from crac.data import Intensity, Recipe
from crac.models.card import ModelCard
from crac.models.model import Model

UNIT = Intensity(method="window", low=0, high=1)


class Threshold(nn.Module):
    """Says "bright" where the image is above one half: a model whose right answer is known."""

    def forward(self, images: Tensor) -> Tensor:
        bright = 10 * (images[:, :1] - 0.5)
        return torch.cat([-bright, bright], dim=1)


def threshold_model(recipe: Recipe, dims: int = 2, patch_size: tuple[int, ...] | None = None, **options: Any) -> Model:
    card = ModelCard(
        backbone="unet", width=1, dims=dims, patch_size=patch_size, class_names=("dark", "bright"),
        channel_names=tuple(f"channel{n}" for n in range(len(recipe.intensity))), recipe=recipe,
    )  # fmt: skip
    return Model(Threshold(), card, torch.device("cpu"), **options)


def oblique() -> np.ndarray:
    """Rotated about all three axes, anisotropic, left-handed."""
    a, b, c = 0.4, -0.7, 2.2
    turn_x = np.array([[1, 0, 0], [0, np.cos(a), -np.sin(a)], [0, np.sin(a), np.cos(a)]])
    turn_y = np.array([[np.cos(b), 0, np.sin(b)], [0, 1, 0], [-np.sin(b), 0, np.cos(b)]])
    turn_z = np.array([[np.cos(c), -np.sin(c), 0], [np.sin(c), np.cos(c), 0], [0, 0, 1]])
    affine = np.eye(4)
    affine[:3, :3] = turn_x @ turn_y @ turn_z @ np.diag([-1.3, 0.8, 6.5])
    affine[:3, 3] = -31.25, 12.5, 140.75
    return affine


def write_blobs(path: Path, shape: tuple[int, int, int] = (37, 52, 9), affine: np.ndarray | None = None) -> np.ndarray:
    generator = np.random.default_rng(1)
    x, y, z = np.meshgrid(*(np.linspace(-1, 1, size) for size in shape), indexing="ij")
    blob = 1 / (1 + np.exp(12 * ((x - 0.2) ** 2 + (y + 0.1) ** 2 / 0.5 + (z - 0.1) ** 2 / 0.9 - 0.4)))
    image = (0.9 * blob + 0.05 * generator.random(shape)).astype(np.float32)
    nib.save(nib.Nifti1Image(image, oblique() if affine is None else affine), path)
    return image


RECIPES = {
    "stored": Recipe(name="stored", orientation="stored", intensity=(UNIT,)),
    "canonical": Recipe(name="canonical", orientation="canonical", slice_axis=1, intensity=(UNIT,)),
    "resampled": Recipe(name="resampled", orientation="canonical", spacing=(1.1, 0.9, 1.0), intensity=(UNIT,)),
}
