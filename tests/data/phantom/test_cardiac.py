"""Hearts: anatomical, varied, and unsure at their boundaries."""

from pathlib import Path

import nibabel as nib
import numpy as np
from scipy import ndimage
from tests.data.phantom.files import fingerprint

from crac.data import Store, phantom


def test_hearts_are_hearts(cardiac_store: Store) -> None:
    for name in cardiac_store.cases:
        label = cardiac_store.label(name)[0]
        assert set(np.unique(label)) == {0, 1, 2, 3}
        # The cavity lies inside its muscle: what it touches is muscle.
        touched = label[ndimage.binary_dilation(label == 3) & (label != 3)]
        assert (touched == 2).mean() > 0.95
        right, left = (ndimage.center_of_mass(label == value) for value in (1, 3))
        assert right[1] < left[1]
    cavities = [case.voxels[3] * np.prod(case.spacing) for case in cardiac_store.cases.values()]
    diastole, systole = cavities[::2], cavities[1::2]
    assert all(full > empty for full, empty in zip(diastole, systole, strict=True))
    assert np.std(diastole) > 0.1 * np.mean(diastole)


def test_the_annotator_wavers_and_the_image_does_not(tmp_path: Path) -> None:
    steady, unsteady = (
        phantom.cardiac(tmp_path / name, patients=1, size=64, slices=4, waver_mm=amount)
        for name, amount in (("steady", 0.0), ("unsteady", 1.5))
    )
    a, b = fingerprint(steady), fingerprint(unsteady)
    for name in a:
        assert (a[name] == b[name]) == ("_gt" not in name)
    first, second = (
        np.asarray(nib.load(folder / "patient001" / "patient001_frame01_gt.nii.gz").dataobj)
        for folder in (steady, unsteady)
    )
    changed = first != second
    # Millimetres to the nearest boundary between classes, slice by slice; sizes are 64 voxels over 180 mm.
    edge = ndimage.maximum_filter(first, (3, 3, 1)) != ndimage.minimum_filter(first, (3, 3, 1))
    distance = np.stack([ndimage.distance_transform_edt(~edge[..., z]) for z in range(edge.shape[2])], axis=2)
    near, far = edge, distance * 180 / 64 > 4 * 1.5
    assert 0.1 < changed[near].mean() < 0.6
    assert changed[far].mean() < 0.001
