"""Calibrated probabilities are probabilities, and no label changes."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import crac
from crac.calibration import Calibrator

KEEPING = [name for name, kind in crac.CALIBRATORS.items() if kind.keeps_labels]
DTYPES = st.sampled_from([torch.float16, torch.bfloat16, torch.float32, torch.float64])


@st.composite
def calibrators(draw: st.DrawFn) -> Calibrator:
    """Any calibrator that keeps labels, with random coefficients."""
    regions = draw(st.sampled_from(["volume", "slice"]))
    calibrator = crac.build_calibrator(draw(st.sampled_from(KEEPING)), draw(st.integers(2, 6)), regions=regions)
    torch.manual_seed(draw(st.integers(0, 2**16)))
    spread = draw(st.sampled_from([0.1, 1, 5]))
    weights = torch.randn_like(calibrator.weights) * spread
    weights[:, 0] = weights[:, 0].exp()
    calibrator.weights.copy_(weights)
    return calibrator


@st.composite
def scores(draw: st.DrawFn, classes: int) -> Tensor:
    """Logits of any precision: continuous, many of them equal, neighbouring numbers, or huge."""
    side = st.integers(1, 6)
    shape = (draw(st.integers(1, 2)), classes, *draw(st.one_of(st.tuples(side, side), st.tuples(side, side, side))))
    torch.manual_seed(draw(st.integers(0, 2**16)))
    kind = draw(st.sampled_from(["continuous", "ties", "neighbours", "huge"]))
    dtype = draw(DTYPES)
    if kind == "ties":
        return torch.randint(-1, 2, shape).to(dtype)
    if kind == "neighbours":
        near = torch.full(shape, draw(st.sampled_from([-3.0, 0.1, 7.0])), dtype=dtype)
        return torch.where(torch.rand(shape) < 0.5, near, torch.nextafter(near.float(), near.float() + 1).to(dtype))
    return torch.randn(shape).to(dtype) * (3 if kind == "continuous" else torch.finfo(dtype).max / 8)


@given(st.data())
def test_no_label_changes(data: st.DataObject) -> None:
    calibrator = data.draw(calibrators())
    logits = data.draw(scores(calibrator.num_classes))
    p = calibrator(logits)
    assert p.dtype == (torch.float64 if logits.dtype == torch.float64 else torch.float32)
    assert torch.equal(p.argmax(1), logits.argmax(1))
    assert ((p >= 0) & (p <= 1)).all()
    torch.testing.assert_close(p.sum(1), torch.ones_like(p[:, 0]), rtol=0, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_a_winner_that_bias_would_overtake_is_just_ahead(dtype: torch.dtype) -> None:
    calibrator = crac.build_calibrator("class_region_affine", 3)
    calibrator.weights[:, 1] = 30  # class 0 is far ahead wherever it did not win
    logits = torch.tensor([0.0, -1, 2], dtype=dtype).view(1, 3, 1, 1).expand(1, 3, 4, 4)
    p = calibrator(logits)
    assert (p.argmax(1) == 2).all()
    assert (p[:, 2] > p[:, 0]).all()
    torch.testing.assert_close(p[:, 2], torch.full((1, 4, 4), 0.5))
    torch.testing.assert_close(p.sum(1), torch.ones(1, 4, 4))


def test_vector_may_change_labels() -> None:
    calibrator = crac.build_calibrator("vector", 2)
    calibrator.weights[0, 3] = 5
    assert (calibrator(torch.tensor([1.0, 0]).view(1, 2, 1, 1)).argmax(1) == 1).all()


@pytest.mark.parametrize("name", crac.CALIBRATORS)
def test_gradients_reach_the_logits(name: str) -> None:
    logits = torch.randn(1, 3, 5, 5, requires_grad=True)
    crac.build_calibrator(name, 3)(logits)[:, 0].sum().backward()
    assert logits.grad.isfinite().all()
    assert logits.grad.abs().sum() > 0


@pytest.mark.parametrize("name", crac.CALIBRATORS)
def test_slices_of_a_volume(name: str) -> None:
    logits = torch.nn.functional.interpolate(torch.randn(2, 3, 3, 4, 4), scale_factor=4)
    calibrator = crac.build_calibrator(name, 3, regions="slice")
    calibrator.weights.copy_(torch.rand_like(calibrator.weights) + 0.5)
    by_slice = torch.stack([calibrator(part) for part in logits.unbind(2)], 2)
    torch.testing.assert_close(calibrator(logits), by_slice, rtol=0, atol=0)
    volume = crac.build_calibrator(name, 3)
    volume.weights.copy_(calibrator.weights)
    assert torch.equal(volume(logits), by_slice) != volume.by_region


@pytest.mark.parametrize(
    "logits", [torch.zeros(1, 3, 4, 4, dtype=torch.int64), torch.zeros(1, 4, 4, 4), torch.zeros(1, 3, 4)]
)
def test_what_are_no_logits_is_refused(logits: Tensor) -> None:
    with pytest.raises(crac.errors.InputError, match=r"logits must be floating point of shape \(B, 3, \*S\)"):
        crac.build_calibrator("class_region", 3)(logits)
