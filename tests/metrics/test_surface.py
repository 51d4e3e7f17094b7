"""Surfaces and boxes of masks against scipy."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy import ndimage

from crac.metrics.surface import bounding_box, surface


@given(seed=st.integers(0, 1000), dims=st.sampled_from([2, 3]), density=st.sampled_from([0.02, 0.3, 0.9]))
def test_surface_is_what_erosion_removes_and_the_box_is_tight(seed, dims, density):
    rng = np.random.default_rng(seed)
    mask = rng.uniform(size=rng.integers(1, 9, size=dims)) < density
    np.testing.assert_array_equal(surface(mask), mask & ~ndimage.binary_erosion(mask))
    box = bounding_box(mask)
    if not mask.any():
        assert box is None
    else:
        assert box == ndimage.find_objects(mask.astype(int))[0]
