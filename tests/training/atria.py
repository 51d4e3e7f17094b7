"""Volumes in which one chamber of a heart is to be found among others that look alike."""

from pathlib import Path

import nibabel as nib
import numpy as np
from scipy import ndimage

from crac.data import Store, prepare
from crac.files import write_json


def write_atria(folder: Path, volumes: int = 12, size: int = 64, slices: int = 20, seed: int = 0) -> Path:
    """Write a data set in nnU-Net's layout: a left atrium with a vein, a few percent of the voxels, in noise."""
    generator = np.random.default_rng(seed)
    for part in ("imagesTr", "labelsTr"):
        (folder / part).mkdir(parents=True)
    axes = np.stack(np.meshgrid(*(np.arange(side) for side in (size, size, slices)), indexing="ij"), -1)

    def ellipsoid(centre: np.ndarray, radii: np.ndarray) -> np.ndarray:
        inside: np.ndarray = (((axes - centre) / radii) ** 2).sum(-1) < 1
        return inside

    for number in range(volumes):
        centre = np.array([size * 0.42, size * 0.6, slices / 2]) + generator.normal(0, (2, 2, 1))
        radii = np.array([size * 0.13, size * 0.1, slices * 0.28]) * generator.uniform(0.85, 1.15, 3)
        atrium = ellipsoid(centre, radii) | ellipsoid(centre + np.array([-7, 4, 1]), np.array([6, 3, 2]))
        ventricle, aorta = centre + np.array([2, -20, 0]), centre + np.array([19, -6, 0])
        others = ellipsoid(ventricle, radii * 1.6) | ellipsoid(aorta, radii * 1.2)
        body = ellipsoid(np.array([size / 2, size / 2, slices / 2]), np.array([size * 0.46, size * 0.42, slices]))
        image = 0.3 * body + 0.5 * (atrium | others)
        image = ndimage.gaussian_filter(image, (1, 1, 0.5)) + generator.normal(0, 0.08, image.shape)
        name = f"atrium_{number:03d}"
        affine = np.diag([1.25, 1.25, 2.5, 1])
        nib.Nifti1Image(image.astype(np.float32), affine).to_filename(folder / f"imagesTr/{name}_0000.nii.gz")
        nib.Nifti1Image(atrium.astype(np.uint8), affine).to_filename(folder / f"labelsTr/{name}.nii.gz")
    about = {"channel_names": {"0": "MRI"}, "labels": {"background": 0, "left atrium": 1}, "file_ending": ".nii.gz"}
    write_json(folder / "dataset.json", {**about, "numTraining": volumes})
    return folder


def atria_store(folder: Path, dims: int) -> Store:
    """Return such volumes, prepared."""
    return prepare("nnunet", write_atria(folder / "raw"), folder / "store", dims=dims)
