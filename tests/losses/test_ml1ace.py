"""The calibration error that is trained on."""

import pytest
import torch
import torch.nn.functional as F
from tests.losses.batches import batch

import crac


def test_ml1ace_is_the_mean_gap_of_filled_bins():
    logits, labels = batch((2, 6, 7))
    loss = crac.build_loss("ml1ace", 3, bins=5)
    probabilities, errors = logits.detach().softmax(1), []
    for image, target in zip(probabilities, labels, strict=True):
        for k in range(3):
            gaps = []
            for low in (0, 0.2, 0.4, 0.6, 0.8):
                inside = (image[k] > low) & (image[k] <= low + 0.2 + 1e-9)
                if inside.any():
                    gaps.append((image[k][inside].mean() - (target[inside] == k).float().mean()).abs())
            errors.append(torch.stack(gaps).mean())
    torch.testing.assert_close(loss.error(probabilities, labels).flatten(), torch.stack(errors))
    torch.testing.assert_close(loss(logits, labels), F.cross_entropy(logits, labels) + torch.stack(errors).mean())
    sure = 60 * F.one_hot(labels, 3).movedim(-1, 1).float()
    assert loss.error(sure.softmax(1), labels).max() < 1e-6


def test_soft_bins_share_a_pixel_between_the_two_nearest_centres():
    logits, labels = batch((2, 6, 7), dtype=torch.float64)
    loss = crac.build_loss("ml1ace", 3, bins=5, soft=True)
    probabilities, errors = logits.detach().softmax(1), []
    for image, target in zip(probabilities, labels, strict=True):
        for k in range(3):
            gaps = []
            for centre in (0.1, 0.3, 0.5, 0.7, 0.9):
                weight = (1 - (image[k].clamp(0.1, 0.9) - centre).abs() / 0.2).clamp(min=0)
                if weight.sum() >= 0.01:
                    gaps.append(((weight * (image[k] - (target == k).double())).sum() / weight.sum()).abs())
            errors.append(torch.stack(gaps).mean())
    torch.testing.assert_close(loss.error(probabilities, labels).flatten(), torch.stack(errors))
    hard = crac.build_loss("ml1ace", 3, bins=5)
    assert not torch.allclose(loss.error(probabilities, labels), hard.error(probabilities, labels))


@pytest.mark.parametrize("soft", [False, True])
def test_values_that_are_not_finite_make_the_loss_nan(soft):
    logits, labels = batch((2, 6, 7))
    logits = logits.detach().clone()
    logits[0, 1, 2, 3] = torch.nan
    assert crac.build_loss("ml1ace", 3, bins=5, soft=soft)(logits, labels).isnan()
