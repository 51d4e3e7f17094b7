"""The recipes of the package: the paper's, and that of a spacing."""

import numpy as np
import pytest
import torch
from tests.data.grids import RECIPES, affine_of
from torch.nn import functional as F

from crac.data.recipes import ACDC


def test_the_paper_s_recipe_for_acdc() -> None:
    generator = np.random.default_rng(0)
    image = generator.integers(50, 900, (1, 216, 256, 4)).astype(np.float32)
    prepared, _ = ACDC.apply(image, np.diag([1.5, 1.5, 10, 1]))
    assert prepared.shape == (1, 4, 192, 192)
    low, high = np.percentile(image, (0.5, 99.5))
    scaled = torch.from_numpy(((image - low) / (high - low)).clip(0, 1))[0].permute(2, 1, 0)[None].float()
    expected = F.interpolate(scaled, (224, 224), mode="bilinear", antialias=True)[0, :, 16:208, 16:208]
    np.testing.assert_allclose(prepared[0], expected.numpy(), atol=1e-3)


def test_slices_are_cut_across_the_coarsest_axis() -> None:
    image = np.zeros((1, 5, 40, 40), dtype=np.float32)
    image[0, 3] = 1
    recipe = RECIPES["sagittal"]
    prepared, geometry = recipe.apply(image, affine_of("RAS", (5, 40, 40), (4.0, 0.9, 0.9)))
    assert prepared.shape == (1, 5, 40, 40)
    np.testing.assert_array_equal(prepared[0].mean(axis=(1, 2)), [0, 0, 0, 1, 0])
    assert recipe.prepared_spacing(geometry) == pytest.approx((4, 0.9, 0.9))
