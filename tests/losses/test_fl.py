"""The focal loss."""

import torch
import torch.nn.functional as F
from tests.losses.batches import batch

import crac


def test_focal_loss_with_gamma_zero_is_cross_entropy():
    logits, labels = batch()
    torch.testing.assert_close(crac.build_loss("fl", 3, gamma=0)(logits, labels), F.cross_entropy(logits, labels))
