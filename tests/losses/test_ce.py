"""Cross-entropy and Dice are those of PyTorch and MONAI."""

import pytest
import torch
import torch.nn.functional as F
from tests.losses.batches import batch

import crac


def test_class_weights_are_pytorchs():
    logits, labels = batch()
    weights = torch.tensor([0.2, 1.0, 3.0])
    found = crac.build_loss("ce", 3, class_weights=weights)(logits, labels)
    torch.testing.assert_close(found, F.cross_entropy(logits, labels, weights))


def test_dice_term_is_monais():
    monai = pytest.importorskip("monai.losses")
    logits, labels = batch()
    rival = monai.DiceLoss(include_background=False, to_onehot_y=True, softmax=True, batch=True, smooth_nr=1e-5)
    plain, with_dice = (crac.build_loss("ce", 3, dice_weight=w)(logits, labels) for w in (0, 1))
    torch.testing.assert_close(with_dice - plain, rival(logits, labels[:, None]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_pixels_without_weight_pull_nowhere_however_the_loss_is_scaled(dtype):
    """A batch that shows classes of weight 0 alone, under the loss scale of mixed precision."""
    loss = crac.CELoss(3, class_weights=[0, 1, 1])
    logits = torch.randn(1, 3, 5, 4, dtype=dtype, requires_grad=True)
    value = loss(logits, torch.zeros(1, 5, 4, dtype=torch.int64))
    (2**16 * value).backward()
    assert value == 0
    assert not logits.grad.any()
