"""Hypothesis strategies shared by several tests."""

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp


@st.composite
def label_maps(draw, max_classes: int = 8, max_side: int = 6):
    """``(labels (B, *S) int64, number of classes)``, 2-D and 3-D, blocky so that inner pixels occur."""
    classes = draw(st.integers(2, max_classes))
    dims = draw(st.sampled_from([2, 3]))
    shape = draw(st.tuples(st.integers(1, 2), *[st.integers(1, max_side)] * dims))
    labels = draw(hnp.arrays(np.int64, shape, elements=st.integers(0, classes - 1), fill=st.integers(0, classes - 1)))
    for axis in range(1, dims + 1):
        labels = labels.repeat(draw(st.integers(1, 2)), axis=axis)
    return labels, classes


label_maps.borders = st.sampled_from(["replicate", "background"])
