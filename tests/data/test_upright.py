"""Every picture of a slice is the same way up and has the right shape, however its file is stored."""

import itertools

import nibabel as nib
import numpy as np
import pytest

from crac.data import Geometry, Intensity, Recipe
from crac.data.upright import Upright

SPACING = (1.0, 2.0, 5.0)  # right, front, top
INTENSITY = (Intensity(method="percentile", low=0, high=100),)


def patient() -> np.ndarray:
    """A volume whose axes grow to the right, the front and the top, with no symmetry at all."""
    volume = np.zeros((10, 8, 4), dtype=np.float32)
    volume[7:, :, :] = 1  # right
    volume[:, 6:, :] += 2  # front
    volume[:, :, 3] += 4  # top
    return volume


def stored(codes: str) -> tuple[np.ndarray, np.ndarray]:
    """The same patient with other axes, and the affine that says so."""
    image = nib.Nifti1Image(patient(), np.diag([*SPACING, 1]))
    turn = nib.orientations.ornt_transform(
        nib.orientations.io_orientation(image.affine), nib.orientations.axcodes2ornt(codes)
    )
    turned = image.as_reoriented(turn)
    return np.asarray(turned.dataobj), turned.affine


def test_a_single_slice_is_shown_as_one_whatever_its_thickness() -> None:
    assert Upright.of_file((12, 10, 1), np.diag([1.5, 1.5, 1, 1])).order == (2, 1, 0)


def every_orientation() -> list[str]:
    letters = [("R", "L"), ("A", "P"), ("S", "I")]
    return ["".join(codes) for axes in itertools.permutations(letters) for codes in itertools.product(*axes)]


@pytest.mark.parametrize("codes", every_orientation())
def test_a_file_is_shown_as_radiologists_look_whatever_its_axes(codes):
    volume, affine = stored(codes)
    upright = Upright.of_file(volume.shape, affine)
    pictures = upright.turn(volume)
    assert pictures.shape == (4, 8, 10)  # slices across the coarsest axis
    assert (pictures[:, 0] >= 2).all()  # the front is on top
    assert (pictures[0, :, 0] % 2 == 1).all()  # the patient's right is on the left
    assert (pictures[3] >= 4).all()  # from the feet upwards
    spacing = nib.affines.voxel_sizes(affine)
    assert upright.aspect(spacing) == 2.0  # pixels are twice as high as wide


@pytest.mark.parametrize("codes", ["RAS", "LPS", "SAR", "PIL"])
@pytest.mark.parametrize("slice_axis", [0, 1, 2])
def test_prepared_and_native_volumes_give_the_same_picture(codes, slice_axis):
    volume, affine = stored(codes)
    recipe = Recipe(name="x", orientation="canonical", slice_axis=slice_axis, intensity=INTENSITY)
    prepared, geometry = recipe.apply(volume[None], affine)
    first, second = Upright.prepared(recipe), Upright.native(recipe, geometry)
    pictures = first.turn(prepared)
    np.testing.assert_allclose(pictures[0], second.turn(volume) / volume.max(), atol=1e-6)
    assert first.aspect(recipe.prepared_spacing(geometry)) == pytest.approx(second.aspect(geometry.spacing))
    top, left = pictures[0][:, 0].mean(), pictures[0][:, :, 0].mean()
    assert top > pictures[0][:, -1].mean()  # the front or the head is on top
    assert left > pictures[0][:, :, -1].mean()  # the right or the front is on the left


def test_axes_left_as_stored_are_shown_as_stored():
    recipe = Recipe(name="x", orientation="stored", intensity=INTENSITY)
    volume, affine = stored("LPS")
    prepared, _ = recipe.apply(volume[None], affine)
    np.testing.assert_array_equal(Upright.prepared(recipe).turn(prepared), prepared)
    native = Upright.native(recipe, Geometry.of(volume.shape, affine)).turn(volume)
    np.testing.assert_allclose(native / volume.max(), prepared[0], atol=1e-6)
