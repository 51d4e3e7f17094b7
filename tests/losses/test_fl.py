"""The focal loss."""

import pytest
import torch
import torch.nn.functional as F
from tests.losses.batches import batch

import crac


def test_focal_loss_with_gamma_zero_is_cross_entropy():
    logits, labels = batch()
    torch.testing.assert_close(crac.build_loss("fl", 3, gamma=0)(logits, labels), F.cross_entropy(logits, labels))


@pytest.mark.parametrize("gamma", [0.3, 0.5, 1.0, 3.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_pixel_that_is_surely_right_has_no_slope(gamma, dtype):
    """At a probability of 1 a power below 1 of what is missing to it would rise without bound."""
    logits = torch.tensor([800.0, 0.0, 0.0], dtype=dtype).view(1, 3, 1, 1).repeat(1, 1, 2, 2).requires_grad_()
    value = crac.build_loss("fl", 3, gamma=gamma)(logits, torch.zeros(1, 2, 2, dtype=torch.int64))
    value.backward()
    assert value == 0
    assert not logits.grad.any()
