"""Label smoothing."""

import torch
import torch.nn.functional as F
from tests.losses.batches import batch

import crac


def test_label_smoothing_is_pytorchs():
    logits, labels = batch()
    expected = F.cross_entropy(logits, labels, label_smoothing=0.1)
    torch.testing.assert_close(crac.build_loss("ls", 3, alpha=0.1)(logits, labels), expected)
