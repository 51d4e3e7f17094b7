"""Margin-based label smoothing."""

import torch
import torch.nn.functional as F
from tests.losses.batches import batch

import crac


def test_only_what_exceeds_the_margin_costs():
    logits, labels = batch()
    below = logits.max(1, keepdim=True).values - logits
    beyond = torch.where(below > 2, below - 2, 0)
    assert 0 < (beyond > 0).float().mean() < 1
    expected = F.cross_entropy(logits, labels) + 0.3 * beyond.mean()
    torch.testing.assert_close(crac.build_loss("mbls", 3, alpha=0.3, margin=2.0)(logits, labels), expected)
