"""From an image as it comes to probabilities on its own grid."""

import dataclasses
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
import torch
from tests.models.blobs import RECIPES, Threshold, threshold_model, write_blobs
from torch import Tensor

from crac.errors import InputError


def test_arrays_in_arrays_out(tmp_path: Path) -> None:
    image = write_blobs(tmp_path / "case.nii.gz", affine=np.diag([1.3, 0.8, 6.5, 1]))
    model = threshold_model(RECIPES["resampled"])
    labels, probabilities = model.predict(image, spacing=(1.3, 0.8, 6.5))
    from_file = model.predict(tmp_path / "case.nii.gz")
    assert labels.shape == image.shape
    assert probabilities.shape == (2, *image.shape)
    np.testing.assert_array_equal(labels, from_file.labels)
    np.testing.assert_allclose(probabilities, from_file.probabilities, atol=1e-6)
    for spacing in (None, (1, 1), (1, 1, 0), (1, 1, np.nan), 1.5, (1, 1, "thick"), [[1, 1, 1]]):
        with pytest.raises(InputError, match="spacing must be three positive numbers"):
            model.predict(image, spacing=spacing)
    with pytest.raises(InputError, match=r"spacing is read from the file"):
        model.predict(tmp_path / "case.nii.gz", spacing=(1, 1, 1))
    with pytest.raises(InputError, match="affine is read from the nibabel image"):
        model.predict(nib.load(tmp_path / "case.nii.gz"), affine=np.eye(4))
    with pytest.raises(InputError, match="an array needs its affine or its spacing, not both"):
        model.predict(image, spacing=(1, 1, 1), affine=np.eye(4))
    for affine in (np.eye(3), np.zeros((4, 4)), np.full((4, 4), np.nan), "RAS"):
        with pytest.raises(InputError, match="affine must be a"):
            model.predict(image, affine=affine)
    with pytest.raises(InputError, match="NaN"):
        model.predict(np.full((4, 4, 4), np.nan), spacing=(1, 1, 1))
    with pytest.raises(
        InputError, match=r"image must have 1 channel \(channel0\); got an array of shape \(2, 4, 4, 4\)"
    ):
        model.predict(np.zeros((2, 4, 4, 4)), spacing=(1, 1, 1))


@pytest.mark.parametrize("dims", [2, 3])
@pytest.mark.parametrize("codes", ["RAS", "RPI", "LPS", "SAR", "IPL"])
def test_the_orientation_of_an_array_is_said_or_given(codes: str, dims: int, tmp_path: Path) -> None:
    """The network sees the same image, and answers about the same voxels, however its array lies in memory."""

    class Ramp(Threshold):
        """Its answer depends on where in the image a voxel is."""

        def forward(self, images: Tensor) -> Tensor:
            ramp = torch.linspace(0, 4, images.shape[-1]) + torch.linspace(0, 3, images.shape[-2])[:, None]
            dark, bright = super().forward(images).unbind(1)
            return torch.stack([dark + ramp, bright], 1)

    model = dataclasses.replace(threshold_model(RECIPES["resampled"], dims), network=Ramp())
    image = write_blobs(tmp_path / "ras.nii.gz", affine=np.diag([1.3, 0.8, 6.5, 1]))
    upright = model.predict(image, spacing=(1.3, 0.8, 6.5))
    assert upright.orientation == "RAS"
    start = nib.load(tmp_path / "ras.nii.gz")
    turn = nib.orientations.ornt_transform(nib.io_orientation(start.affine), nib.orientations.axcodes2ornt(codes))
    turned = start.as_reoriented(turn)
    array = np.asarray(turned.dataobj)
    nib.save(turned, tmp_path / "turned.nii.gz")
    back = nib.orientations.ornt_transform(nib.orientations.axcodes2ornt(codes), nib.io_orientation(start.affine))
    for given in (
        model.predict(array, affine=turned.affine),
        model.predict(turned),
        model.predict(tmp_path / "turned.nii.gz"),
        model.predict(str(tmp_path / "turned.nii.gz")),
    ):
        assert given.orientation == codes
        np.testing.assert_allclose(given.affine, turned.affine, atol=1e-5)
        np.testing.assert_array_equal(nib.orientations.apply_orientation(given.labels, back), upright.labels)
        for own, expected in zip(given.probabilities, upright.probabilities, strict=True):
            np.testing.assert_allclose(nib.orientations.apply_orientation(own, back), expected, atol=1e-6)
    if codes != "RAS":  # what an array does not say cannot be guessed
        spacing = nib.affines.voxel_sizes(turned.affine)
        assert model.predict(array, spacing=spacing).orientation == "RAS"
        assert (model.predict(array, spacing=spacing).labels != given.labels).any()
