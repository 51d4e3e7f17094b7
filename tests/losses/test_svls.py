"""Targets smoothed over neighbours."""

import pytest
import torch
from tests.losses.batches import batch

import crac
from crac.errors import InputError


def test_svls_targets_sum_to_one_and_keep_the_label_in_uniform_patches():
    _, labels = batch((2, 6, 7))
    targets = crac.build_loss("svls", 3).targets(labels)
    torch.testing.assert_close(targets.sum(1), torch.ones(labels.shape))
    uniform = crac.build_loss("svls", 3).targets(torch.ones(1, 4, 4, dtype=torch.int64))
    torch.testing.assert_close(uniform[:, 1], torch.ones(1, 4, 4))


@pytest.mark.parametrize("shape", [(1, 4, 5), (1, 4, 5, 3)])
@pytest.mark.parametrize("ignore_index", [None, 9])
def test_a_label_that_is_no_class_is_not_smoothed_away(shape, ignore_index):
    """On a GPU labels are not looked at, and the neighbours' shares would hide it."""
    labels = torch.ones(shape, dtype=torch.int64)
    labels[0, 0, 0], labels[0, -1, -1] = 9, 7
    targets = crac.build_loss("svls", 3, ignore_index=ignore_index).targets(labels)
    unknown = labels == 7 if ignore_index == 9 else labels != 1
    assert torch.equal(targets.isnan().all(1), unknown)
    assert torch.equal(targets.isnan().any(1), unknown)


@pytest.mark.parametrize("sigma", [0.1, 0.29, float("nan")])
def test_a_width_at_which_no_neighbour_counts_is_refused(sigma):
    with pytest.raises(InputError, match=r"sigma must be a number of at least 0\.3"):
        crac.build_loss("svls", 3, sigma=sigma)


@pytest.mark.usefixtures("fresh_compiler")
def test_compiles_for_images_of_any_size():
    loss = crac.SVLSLoss(3)
    compiled = torch.compile(loss, fullgraph=True, dynamic=True, backend="aot_eager")
    for shape in ((2, 9, 8), (3, 12, 7)):
        logits, labels = batch(shape)
        torch.testing.assert_close(compiled(logits, labels), loss(logits, labels))
