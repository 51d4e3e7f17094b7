"""One class at a time gives what whole tensors give."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import crac
from agreement import CHOICES, batch, build
from crac.functional import planes

CASES = CHOICES | {"method": [choice for choice in CHOICES["method"] if choice[0] == "crac"], "dtype": [torch.float32]}


@given(
    case=st.fixed_dictionaries({name: st.sampled_from(choices) for name, choices in CASES.items()}),
    seed=st.integers(0, 2**31),
)
def test_penalty_by_class(case: dict[str, Any], seed: int) -> None:
    torch.manual_seed(seed)
    logits, labels = batch(case | {"label_dtype": torch.int64}, "cpu")
    loss = build(case, "cpu")
    logits.requires_grad_()
    wide = logits.detach().double().requires_grad_()
    value, expected = loss(logits, labels), loss(wide, labels)
    assert planes.pays(logits)
    assert not planes.pays(wide)
    # Logits have single precision: what is left of their difference is no more exact than they are.
    assert value.item() == pytest.approx(expected.item(), rel=1e-5, abs=1e-6)
    (gradient,), (reference,) = torch.autograd.grad(value, logits), torch.autograd.grad(expected, wide)
    torch.testing.assert_close(gradient.double(), reference, rtol=1e-5, atol=1e-5 * reference.abs().max().item())


def test_backward_twice() -> None:
    loss = crac.CRaCLoss(3)
    logits = torch.randn(1, 3, 5, 6, requires_grad=True)
    value = loss(logits, torch.randint(3, (1, 5, 6)))
    (first,) = torch.autograd.grad(value, logits, retain_graph=True)
    (second,) = torch.autograd.grad(2 * value, logits)
    torch.testing.assert_close(second, 2 * first)


def test_ignored_pixels_may_hold_infinities() -> None:
    loss = crac.CRaCLoss(3, ignore_index=9)
    logits = torch.randn(1, 3, 5, 6)
    labels = torch.randint(3, (1, 5, 6))
    labels[0, 0, 0] = 9
    logits[0, 1, 0, 0] = torch.inf
    logits.requires_grad_()
    penalty = loss.penalty(logits, labels)
    penalty.backward()
    assert penalty.isfinite()
    assert not logits.grad[0, :, 0, 0].any()
