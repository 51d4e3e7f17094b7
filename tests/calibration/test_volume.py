"""Calibrated in pieces as in one piece."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from crac.calibration import CALIBRATORS, build_calibrator
from crac.calibration.volume import calibrate_slabs, calibrate_volume


@given(
    name=st.sampled_from(sorted(CALIBRATORS)), regions=st.sampled_from(["volume", "slice"]),
    depth=st.integers(1, 12), cuts=st.lists(st.integers(1, 11)), seed=st.integers(0, 20),
)  # fmt: skip
def test_slabs_are_calibrated_as_the_whole(name: str, regions: str, depth: int, cuts: list[int], seed: int) -> None:
    torch.manual_seed(seed)
    logits = torch.randn(3, depth, 6, 5).cumsum(1)
    calibrator = build_calibrator(name, 3, regions=regions)
    calibrator.weights.copy_(torch.rand_like(calibrator.weights) + 0.5)
    slabs = logits.tensor_split(sorted({cut for cut in cuts if cut < depth}), 1)
    whole = calibrate_volume(calibrator, logits)
    pieces = torch.cat(list(calibrate_slabs(calibrator, iter(slabs))), 1)
    torch.testing.assert_close(pieces, whole, atol=2e-7, rtol=0)


def test_nothing_comes_of_nothing() -> None:
    assert list(calibrate_slabs(build_calibrator("class_region", 3), [])) == []
    with pytest.raises(StopIteration):
        next(calibrate_slabs(build_calibrator("class_region", 3), []))
