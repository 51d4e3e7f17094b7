"""Losses at several resolutions."""

import pytest
import torch
import torch.nn.functional as F
from tests.losses.batches import batch, make

import crac


def test_deep_supervision():
    loss = make("crac")
    logits, labels = batch((2, 8, 12))
    coarse = [torch.randn(2, 3, 4, 6), torch.randn(2, 3, 2, 3)]
    wrapper = crac.DeepSupervision(loss)
    parts = [loss(logits, labels)]
    parts += [F.cross_entropy(x, labels[:, s // 2 :: s, s // 2 :: s]) for x, s in zip(coarse, (2, 4), strict=True)]
    expected = (parts[0] + parts[1] / 2 + parts[2] / 4) / 1.75
    torch.testing.assert_close(wrapper([logits, *coarse], labels), expected)
    torch.testing.assert_close(wrapper([logits, *coarse], labels[:, None].to(torch.uint8)), expected)
    before = loss.lambda_.clone()
    wrapper.observe([logits, *coarse], labels)
    wrapper.update_multipliers()
    assert (loss.lambda_ > before).any()
    with pytest.raises(ValueError, match="outputs must be 2 logit maps, one per weight; got 3"):
        crac.DeepSupervision(loss, [1, 0.5])([logits, *coarse], labels)


def test_deep_supervision_of_more_pixels_than_a_label_can_count():
    wrapper, labels = crac.DeepSupervision(make("crac")), torch.randint(3, (1, 600, 4))
    outputs = [torch.randn(1, 3, 600, 4), torch.randn(1, 3, 300, 2)]
    assert torch.equal(wrapper(outputs, labels.to(torch.uint8)), wrapper(outputs, labels))


@pytest.mark.parametrize("weights", [[], [0, 0], [1, -1], [float("nan"), 1], [1, float("nan")], [1, float("inf")]])
def test_deep_supervision_refuses_weights_that_make_no_mean(weights):
    with pytest.raises(ValueError, match="weights must be finite, not negative nor all 0; got"):
        crac.DeepSupervision(make("crac"), weights)


def test_deep_supervision_of_no_output():
    with pytest.raises(ValueError, match="outputs must hold at least one logit map; got none"):
        crac.DeepSupervision(make("crac"))([], batch()[1])
