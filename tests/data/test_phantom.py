"""Phantoms: reproducible, varied, anatomical, and unsure at their boundaries."""

import hashlib
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
from scipy import ndimage

from crac.data import Store, phantom
from crac.data.phantom import imaging
from crac.errors import InputError


def fingerprint(folder: Path) -> dict[str, str]:
    # Voxels, not files: a gzip header holds the time.
    return {
        str(path.relative_to(folder)): hashlib.sha256(np.asarray(nib.load(path).dataobj).tobytes()).hexdigest()
        for path in sorted(folder.rglob("*.nii.gz"))
    }


@pytest.mark.parametrize("write", [phantom.cardiac, phantom.abdominal])
def test_deterministic_by_seed(write, tmp_path: Path) -> None:
    options = {"patients": 2, "size": 40, "slices": 4}
    first, second, other = (
        fingerprint(write(tmp_path / name, seed=seed, **options)) for name, seed in (("a", 1), ("b", 1), ("c", 2))
    )
    assert first == second
    assert not set(first.values()) & set(other.values())
    more = fingerprint(write(tmp_path / "more", seed=1, **options | {"patients": 3}))
    assert first.items() <= more.items()


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


def test_partial_volume() -> None:
    edge = imaging.render(lambda rows, columns: (columns > 2.5).astype(float), 2, 6)
    np.testing.assert_array_equal(edge[0], [0, 0, 0, 1, 1, 1])
    edge = imaging.render(lambda rows, columns: (columns > 3).astype(float), 2, 6)
    np.testing.assert_array_equal(edge[0], [0, 0, 0, 0.5, 1, 1])


def test_rician_noise_lifts_the_dark() -> None:
    generator = np.random.default_rng(0)
    # A Rayleigh distribution where there is no signal, Gaussian where there is much.
    assert imaging.rician(generator, np.zeros(100_000), 1.0).mean() == pytest.approx(np.sqrt(np.pi / 2), rel=0.01)
    assert imaging.rician(generator, np.full(100_000, 50.0), 1.0).std() == pytest.approx(1, rel=0.02)


@pytest.mark.parametrize("write", [phantom.cardiac, phantom.abdominal])
def test_bad_arguments(write, tmp_path: Path) -> None:
    for options in ({"patients": 0}, {"size": 8}, {"slices": 1}):
        with pytest.raises(InputError, match="must be a whole number of at least"):
            write(tmp_path / "out", **options)
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        write(tmp_path / "file", patients=1, size=32, slices=4)
