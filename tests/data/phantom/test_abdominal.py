"""Abdomens: anatomical."""

from pathlib import Path

import nibabel as nib
import numpy as np
from scipy import ndimage


def test_abdomens_are_abdomens(abdominal_raw: Path) -> None:
    for path in sorted((abdominal_raw / "TrainingMask").iterdir()):
        image = nib.load(path)
        label = np.asarray(image.dataobj)
        assert set(np.unique(label)) == {0, 1, 2, 3, 4}
        volumes = np.bincount(label.ravel()) * np.abs(np.linalg.det(image.affine[:3, :3])) / 1000
        assert 800 < volumes[1] < 3000, "a liver in millilitres"
        assert volumes[1] > volumes[2] > volumes[4]
        centres = {
            value: nib.affines.apply_affine(image.affine, ndimage.center_of_mass(label == value)) for value in (1, 3)
        }
        assert centres[1][0] > centres[3][0], "the liver is on the right, the spleen on the left"
        assert ndimage.label(label == 2)[1] >= 2, "two kidneys"
