"""The preset ``signed`` against its definition, written out pixel by pixel."""

import copy
import itertools
import math

import numpy as np
import pytest
import torch
import torch.multiprocessing as mp
from hypothesis import given
from hypothesis import strategies as st

import crac
from crac.losses.signed import SIGNALS
from strategies import label_maps


def signed(classes=3, **options):
    return crac.CRaCLoss(classes, preset="signed", **options)


def batch(shape=(2, 12, 11), classes=3, seed=0, size=2.0):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, shape, generator=generator)
    labels[:, : shape[1] // 2] = 1  # room for inner pixels
    return size * torch.randn(shape[0], classes, *shape[1:], generator=generator, dtype=torch.float64), labels


def patch(image, index, radius, border):
    """The labels around a pixel of an image."""
    found = []
    for offset in itertools.product(range(-radius, radius + 1), repeat=image.ndim):
        place = [i + o for i, o in zip(index, offset, strict=True)]
        inside = [min(max(i, 0), n - 1) for i, n in zip(place, image.shape, strict=True)]
        found.append(image[tuple(inside)] if border == "replicate" or inside == place else 0)
    return found


def expected_penalty(logits, labels, price, border="replicate", ignore=None, side=None, smoothing=0.05):
    """Mean over pixels of the price of the pixel's cell times KL(target || softmax)."""
    classes = logits.shape[1]
    side = side or (5 if labels.ndim == 3 else 3)
    values = []
    for image, scores in zip(labels, logits, strict=True):
        for index in np.ndindex(image.shape):
            if image[index] == ignore:
                continue
            outer = len({label for label in patch(image, index, 1, border) if label != ignore}) > 1
            near = [label for label in patch(image, index, side // 2, border) if label != ignore]
            if outer:
                target = [near.count(k) / len(near) for k in range(classes)]
            else:
                target = [(1 - smoothing) * (image[index] == k) + smoothing / classes for k in range(classes)]
            score = scores[(slice(None), *index)]
            log_p = score - np.logaddexp.reduce(score)
            kl = sum(q * (math.log(q) - log_p[k]) for k, q in enumerate(target) if q > 0)
            values.append(price[int(outer), image[index]] * kl)
    return np.mean(values) if values else 0.0


@given(label_maps(max_classes=4, max_side=5), label_maps.borders, st.booleans(), st.integers(0, 99))
def test_value_equals_the_definition(drawn, border, ignoring, seed):
    labels, classes = drawn
    ignore = classes - 1 if ignoring else None
    random = np.random.default_rng(seed)
    logits = 3 * random.normal(size=(len(labels), classes, *labels.shape[1:]))
    loss = signed(classes, border=border, ignore_index=ignore, by_class=True)
    loss.lambda_.copy_(torch.from_numpy(random.uniform(0, 2, loss.lambda_.shape)))
    found = loss.penalty(torch.from_numpy(logits), torch.from_numpy(labels)).item()
    wanted = expected_penalty(logits, labels, loss.lambda_.double().numpy(), border, ignore)
    assert found == pytest.approx(wanted, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize(("shape", "side"), [((2, 40, 36), 5), ((1, 12, 20, 18), 3)])
def test_the_patch_has_5_by_5_pixels_or_3_by_3_by_3_voxels(shape, side):
    logits, labels = batch(shape)
    own, named = signed(), signed(kernel_size=side)
    assert own.penalty(logits, labels) == named.penalty(logits, labels) > 0
    assert own.penalty(logits, labels) != signed(kernel_size=8 - side).penalty(logits, labels)


@pytest.mark.parametrize("shape", [(2, 9, 8), (1, 5, 6, 7)])
def test_no_penalty_where_the_network_says_the_shares(shape):
    _, labels = batch(shape)
    loss = signed(lambda_=3.0)
    region = crac.functional.region_map(labels)
    target = crac.functional.priors.soft_targets(labels, region, 3, "replicate", loss.patch(labels.ndim - 1), 0.05)
    torch.testing.assert_close(target.sum(1), torch.ones_like(target[:, 0]))
    at_target = target.double().log().clamp(min=-60)
    assert loss.penalty(at_target, labels).item() == pytest.approx(0, abs=1e-6)
    assert loss.penalty(at_target + torch.randn_like(at_target), labels) > 0.01


def test_the_gradient_is_the_price_times_probability_minus_share():
    logits, labels = batch()
    loss = signed(by_class=True)
    loss.lambda_.uniform_(0, 2)
    logits.requires_grad_()
    (gradient,) = torch.autograd.grad(loss.penalty(logits, labels), logits)
    region = crac.functional.region_map(labels)
    target = crac.functional.priors.soft_targets(labels, region, 3, "replicate", 5, 0.05)
    price = loss.lambda_[region.long(), labels].unsqueeze(1)
    torch.testing.assert_close(gradient, price * (logits.detach().softmax(1) - target) / labels.numel())


@pytest.mark.parametrize("options", [{}, {"dice_weight": 1.0}, {"ignore_index": 2, "class_weights": [1, 2, 3]}])
def test_at_a_price_of_0_it_is_the_loss_without(options):
    logits, labels = batch()
    loss = signed(lambda_=0, lambda_min=0, **options)
    torch.testing.assert_close(loss(logits, labels), crac.build_loss("ce", 3, **options)(logits, labels))
    torch.testing.assert_close(loss(logits, labels), loss.supervised(logits, labels))


def gaps(logits, labels, signal, ignore=None):
    """Sums of the two numbers of the signal by region and class, one voxel at a time."""
    probabilities = torch.from_numpy(logits).softmax(1).numpy()
    predicted = probabilities.argmax(1)
    sums = np.zeros((2, 2, logits.shape[1]))
    for b, image in enumerate(labels):
        cells = image if signal == "all" else predicted[b]
        for index in np.ndindex(image.shape):
            k = cells[index]
            if image[index] == ignore or (signal != "all" and k == 0):
                continue
            near = {one for one in patch(cells, index, 1, "replicate") if signal != "all" or one != ignore}
            right = predicted[b][index] == image[index]
            sums[:, int(len(near) > 1), k] += [probabilities[b][(slice(None), *index)].max() - right, 1]
    return sums


@pytest.mark.parametrize("signal", SIGNALS)
@pytest.mark.parametrize("by_class", [False, True])
@pytest.mark.parametrize("ignore", [None, 2, 255])
@pytest.mark.parametrize("shape", [(2, 12, 11), (1, 6, 7, 8)])
def test_the_outer_step_equals_the_definition(signal, by_class, ignore, shape):
    logits, labels = batch(shape)
    logits[:, :, : shape[1] // 2] += 2 * torch.nn.functional.one_hot(labels, 3).movedim(-1, 1)[:, :, : shape[1] // 2]
    if ignore == 255:
        labels[:, -2:] = 255
    loss = signed(signal=signal, by_class=by_class, ignore_index=ignore)
    loss.lambda_.uniform_(0.01, 5)
    before = loss.lambda_.double().numpy().copy()
    loss.observe(logits, labels)
    loss.update_multipliers()
    sums = gaps(logits.numpy(), labels.numpy(), signal, ignore)
    together = np.broadcast_to(sums.sum(2, keepdims=True), sums.shape)
    excess, size = np.where((sums[1] > 0) & by_class, sums, together)
    gap = np.divide(excess, size, out=np.zeros_like(excess), where=size > 0)
    expected = (before * np.exp(6 * gap)).clip(1e-3, 10)
    np.testing.assert_allclose(loss.lambda_.numpy(), expected, rtol=1e-5)
    assert loss.steps == 1
    assert torch.all(loss.rho == 6)


def test_prices_grow_with_overconfidence_and_fall_with_underconfidence():
    labels = torch.zeros(1, 12, 12, dtype=torch.int64)
    labels[:, 3:9, 3:9] = 1
    right = torch.nn.functional.one_hot(labels, 2).movedim(-1, 1).double()
    for signal in SIGNALS:
        sure, unsure = signed(2, signal=signal), signed(2, signal=signal)
        sure.observe(9 * right.roll(2, -1), labels)  # sure, and often wrong on the boundary
        unsure.observe(0.3 * right, labels)  # right everywhere, at 57 %
        for loss in (sure, unsure):
            loss.update_multipliers()
        assert torch.all(sure.lambda_[1] > 0.02)
        assert torch.all(unsure.lambda_ < 0.02)


@given(st.lists(st.floats(-50, 50), min_size=1, max_size=8), st.sampled_from(SIGNALS), st.booleans())
def test_prices_never_leave_their_bounds(sizes, signal, by_class):
    loss = signed(signal=signal, by_class=by_class)
    logits, labels = batch()
    for size in sizes:
        loss.observe(size * logits, labels)
        loss.update_multipliers()
        assert torch.all((loss.lambda_ >= torch.tensor(1e-3)) & (loss.lambda_ <= 10))


def test_without_a_predicted_voxel_prices_stay():
    logits, labels = batch()
    logits[:, 0] += 100
    loss = signed()
    loss.observe(logits, labels)
    loss.update_multipliers()
    assert torch.all(loss.lambda_ == torch.tensor(0.02))


@pytest.mark.parametrize("signal", SIGNALS)
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_observing_values_that_are_not_finite(bad, signal):
    logits, labels = batch()
    logits[0, 0, 3, 3] = bad
    with pytest.raises(ValueError, match="logits given to observe must be finite"):
        signed(signal=signal).observe(logits, labels)
    loss = signed(ignore_index=255, signal=signal)
    labels[0, 3, 3] = 255
    loss.observe(logits, labels)
    loss.update_multipliers()


@pytest.mark.parametrize("signal", SIGNALS)
def test_splitting_the_validation_set_changes_nothing(signal):
    logits, labels = batch((6, 9, 9))
    states = []
    for step in (1, 2, 6):
        loss = signed(by_class=True, signal=signal)
        for start in range(0, 6, step):
            loss.observe(logits[start : start + step], labels[start : start + step])
        loss.update_multipliers()
        states.append(loss.state_dict())
    assert list(states[0]) == ["lambda_", "rho", "previous", "steps"]
    for other in states[1:]:
        torch.testing.assert_close(other, states[0])


@pytest.mark.parametrize("signal", SIGNALS)
def test_state_loads_into_another(signal):
    logits, labels = batch()
    loss, other = signed(signal=signal), signed(signal=signal)
    loss.observe(logits, labels)
    loss.update_multipliers()
    other.load_state_dict(copy.deepcopy(loss.state_dict()))
    assert torch.equal(other(logits, labels), loss(logits, labels))


def test_deep_supervision_takes_the_penalty_at_full_resolution():
    logits, labels = batch((2, 12, 12))
    loss = signed(lambda_=2.0)
    deep = crac.DeepSupervision(loss, [1, 0.5])
    coarse = logits[..., ::2, ::2]
    part = loss.supervised(coarse, labels[..., 1::2, 1::2])
    torch.testing.assert_close(deep([logits, coarse], labels), (loss(logits, labels) + 0.5 * part) / 1.5)


def _observe_half(rank, rendezvous, folder):
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=2)
    logits, labels = batch((4, 8, 8))
    loss = signed(by_class=True)
    loss.observe(logits[2 * rank : 2 * rank + 2], labels[2 * rank : 2 * rank + 2])
    loss.update_multipliers()
    torch.save(loss.state_dict(), f"{folder}/{rank}.pt")
    torch.distributed.destroy_process_group()


@pytest.mark.slow
def test_two_ranks_equal_one(tmp_path):
    mp.spawn(_observe_half, (tmp_path / "rendezvous", tmp_path), nprocs=2)
    alone = signed(by_class=True)
    alone.observe(*batch((4, 8, 8)))
    alone.update_multipliers()
    assert torch.all(alone.lambda_ != 0.02)
    for rank in range(2):
        state = torch.load(tmp_path / f"{rank}.pt", weights_only=True)
        torch.testing.assert_close(state["lambda_"], alone.lambda_, rtol=1e-6, atol=0)
