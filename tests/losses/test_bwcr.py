"""Consistency of two views, weighted near boundaries."""

import pytest
import torch
import torch.nn.functional as F
from tests.losses.batches import batch

import crac


def test_bwcr_consistency():
    loss = crac.build_loss("bwcr", 3)
    logits, labels = batch((2, 24, 24))
    other, mask = logits.detach() + 1, torch.zeros(labels.shape, dtype=torch.bool)
    torch.testing.assert_close(loss(logits, labels), F.cross_entropy(logits, labels))
    assert loss.consistency(logits, logits, labels) == 0
    assert loss.consistency(logits, other, labels, mask) == 0
    mask[:, :12] = True
    expected = loss.weights(labels)[mask].mean()
    torch.testing.assert_close(loss.consistency(logits, other, labels, mask).detach(), expected)
    whole = loss(logits, labels, other, mask)
    torch.testing.assert_close(whole, F.cross_entropy(logits, labels) + expected)
    assert torch.autograd.gradcheck(
        lambda a, b: loss.consistency(a, b, labels[:1, :4, :4]),
        [torch.randn(1, 3, 4, 4, dtype=torch.float64, requires_grad=True) for _ in range(2)],
    )
    with pytest.raises(ValueError, match="other must have the shape of logits"):
        loss.consistency(logits, other[:1], labels)
    with pytest.raises(ValueError, match="mask must be boolean"):
        loss.consistency(logits, other, labels, mask.float())
