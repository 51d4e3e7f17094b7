"""Targets smoothed over neighbours."""

import torch
from tests.losses.batches import batch

import crac


def test_svls_targets_sum_to_one_and_keep_the_label_in_uniform_patches():
    _, labels = batch((2, 6, 7))
    targets = crac.build_loss("svls", 3).targets(labels)
    torch.testing.assert_close(targets.sum(1), torch.ones(labels.shape))
    uniform = crac.build_loss("svls", 3).targets(torch.ones(1, 4, 4, dtype=torch.int64))
    torch.testing.assert_close(uniform[:, 1], torch.ones(1, 4, 4))
