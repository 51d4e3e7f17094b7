"""Folders of probabilities that are too sure, for the tests of calibration from files."""

from pathlib import Path

import nibabel as nib
import numpy as np
import torch
import torch.nn.functional as F

AFFINE = np.diag([1.0, 1.2, 3.0, 1.0])


def overconfident(seed: int, shape: tuple[int, ...] = (20, 18, 8), sharp: float = 3.0) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities ``(K, X, Y, Z)`` whose logits are ``sharp`` times too large, and labels ``(X, Y, Z)``."""
    generator = torch.Generator().manual_seed(seed)
    coarse = 2 * torch.randn(1, 3, 4, 4, 3, generator=generator)
    logits = F.interpolate(coarse, size=shape, mode="trilinear")[0]
    logits[0] += 1
    labels = torch.multinomial(logits.softmax(0).flatten(1).T, 1, generator=generator).view(shape)
    return (sharp * logits).softmax(0).numpy(), labels.numpy().astype(np.uint8)


def write_folders(folder: Path, cases: int = 6, sharp: float = 3.0, name: str = "case_{:02d}") -> tuple[Path, Path]:
    """4-D NIfTI probabilities and labels, as two folders."""
    places = folder / "probabilities", folder / "labels"
    for place in places:
        place.mkdir(parents=True)
    for number in range(cases):
        probabilities, labels = overconfident(number, sharp=sharp)
        file = name.format(number) + ".nii.gz"
        nib.Nifti1Image(np.moveaxis(probabilities, 0, 3), AFFINE).to_filename(places[0] / file)
        nib.Nifti1Image(labels, AFFINE).to_filename(places[1] / file)
    return places
