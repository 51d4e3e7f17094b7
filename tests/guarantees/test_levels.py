"""The histogram against comparing with every threshold."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from crac.guarantees.levels import THRESHOLDS, histogram


def test_thresholds_are_fine_and_exact() -> None:
    assert len(THRESHOLDS) > 10_000
    assert THRESHOLDS[0] == 0
    assert THRESHOLDS[-1] == 1
    steps = np.diff(THRESHOLDS)
    assert (steps > 0).all()
    assert steps.max() < 1e-4
    np.testing.assert_array_equal(THRESHOLDS.astype(np.float32), THRESHOLDS)


@given(st.lists(st.floats(0, 1, width=32), min_size=1, max_size=50))
def test_counts_are_those_of_comparing(values: list[float]) -> None:
    given_ = torch.tensor(values, dtype=torch.float32)
    counts = histogram(given_)
    assert counts.sum() == len(values)
    from_on = np.cumsum(counts[::-1])[::-1]
    some = np.unique(np.concatenate([np.flatnonzero(counts), np.flatnonzero(counts) + 1, [0, len(counts) - 1]]))
    for level in some[some < len(counts)]:
        assert from_on[level] == int((given_.double() >= THRESHOLDS[level]).sum())


def test_the_thresholds_themselves_and_what_lies_just_below() -> None:
    exact = torch.from_numpy(THRESHOLDS.astype(np.float32))
    assert (histogram(exact) == 1).all()
    below = torch.nextafter(exact[1:], torch.tensor(0.0))
    expected = np.ones(len(THRESHOLDS), dtype=np.int64)
    expected[-1] = 0
    np.testing.assert_array_equal(histogram(below), expected)


def test_rounding_beyond_the_ends() -> None:
    counts = histogram(torch.tensor([-0.0, -1e-4, 1.0000001]))
    assert counts[0] == 2
    assert counts[-1] == 1
