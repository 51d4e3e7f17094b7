"""The explicit confidence penalty."""

import torch
import torch.nn.functional as F
from tests.losses.batches import batch

import crac


def test_the_entropy_is_rewarded():
    logits, labels = batch()
    entropy = torch.distributions.Categorical(logits=logits.movedim(1, -1)).entropy()
    expected = F.cross_entropy(logits, labels) - 0.3 * entropy.mean() / 3  # the mean is over classes, too
    torch.testing.assert_close(crac.build_loss("ecp", 3, alpha=0.3)(logits, labels), expected)
