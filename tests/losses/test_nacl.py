"""The neighbourhood prior at the image border."""

import torch
import torch.nn.functional as F

import crac


def test_nacl_pulls_towards_the_prior_where_monais_border_does_not():
    # MONAI pads the one-hot with zeros, so its target sums to less than 1 on edges; ours sums to 1 everywhere.
    labels = torch.ones(1, 5, 5, dtype=torch.int64)
    at_prior = F.one_hot(labels, 2).movedim(-1, 1).float()
    penalty = crac.build_loss("nacl", 2, alpha=1.0)(at_prior, labels) - F.cross_entropy(at_prior, labels)
    assert penalty.abs() < 1e-6
