"""CRaC against its definition, and its multipliers' life."""

import copy
import pickle

import numpy as np
import pytest
import torch
import torch.multiprocessing as mp
from hypothesis import given
from hypothesis import strategies as st
from tests.losses import batches

import crac
import reference
from strategies import label_maps


def filled(loss, seed=0):
    generator = torch.Generator().manual_seed(seed)
    loss.lambda_.copy_(torch.rand(loss.lambda_.shape, generator=generator))
    loss.rho.copy_(torch.rand(loss.rho.shape, generator=generator) + 0.1)
    return loss


def batch(shape, num_classes, seed=0):
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(shape[0], num_classes, *shape[1:], generator=generator)
    labels = torch.randint(num_classes, shape, generator=generator)
    labels[:, : shape[1] // 2] = 1  # room for inner pixels
    return logits, labels


@given(
    label_maps(max_classes=4, max_side=4),
    label_maps.borders,
    st.sampled_from([(1,), (1, 2)]),
    st.sampled_from([0.0, 0.8]),
    st.booleans(),
    st.integers(0, 99),
)
def test_value_and_outer_step_equal_the_definition(drawn, border, radii, tolerance, ignoring, seed):
    labels, classes = drawn
    ignore = classes - 1 if ignoring else None
    options = {"border": border, "radii": radii, "tolerance": tolerance, "ignore_index": ignore}
    logits = torch.from_numpy(np.random.default_rng(seed).normal(size=(len(labels), classes, *labels.shape[1:])) * 4)
    for average in ("all", "region"):
        loss = filled(crac.CRaCLoss(classes, outer_scale=[1.0, 2.0][: len(radii)], average=average, **options), seed)
        state = loss.lambda_.double().numpy().copy(), loss.rho.double().numpy().copy()
        value, sums, counts = reference.crac(
            logits.numpy(), labels, *state, loss.scales.numpy(), border, radii, ignore, tolerance
        )
        assert loss(logits, torch.from_numpy(labels)).item() == pytest.approx(value, rel=1e-6)
        if counts.sum() == 0:
            continue
        loss.observe(logits, torch.from_numpy(labels))
        loss.update_multipliers()
        number = counts.sum() if average == "all" else np.maximum(counts, 1)[:, None]
        others = (counts.sum() - counts)[:, None] * state[0] if average == "all" else 0
        expected = np.where((counts[:, None] > 0) | (average == "all"), (sums[1] + others) / number, state[0])
        np.testing.assert_allclose(loss.lambda_.numpy(), np.clip(expected, 1e-6, 1e6), rtol=1e-5)


@pytest.mark.parametrize("shape", [(2, 40, 36), (1, 12, 20, 18)])
@pytest.mark.parametrize("preset", ["released", "paper"])
def test_presets_at_real_dimension(shape, preset):
    scales, border, _ = {"released": ((5, 1), "background", "all"), "paper": ((9, 9), "replicate", "region")}[preset]
    logits, labels = batch(shape, 3)
    loss = filled(crac.CRaCLoss(3, preset=preset))
    value, _, counts = reference.crac(
        logits.numpy(), labels.numpy(), loss.lambda_.numpy(), loss.rho.numpy(), scales, border
    )
    assert counts.min() > 0
    assert loss(logits, labels).item() == pytest.approx(value, rel=1e-5)


@given(st.lists(st.floats(0, 1e4), min_size=1, max_size=6), st.sampled_from(["all", "region"]), st.floats(0, 5))
def test_multipliers_never_leave_their_bounds(sizes, average, tolerance):
    bounds = {"lambda_min": 1e-3, "lambda_": 1e-3, "lambda_max": 2.0, "rho": 0.5, "rho_max": 0.9, "rho_every": 1}
    loss = crac.CRaCLoss(3, average=average, tolerance=tolerance, **bounds)
    logits, labels = batch((2, 5, 6), 3)
    for size in sizes:
        loss.observe(size * logits, labels)
        loss.update_multipliers()
        assert torch.all((loss.lambda_ >= torch.tensor(1e-3)) & (loss.lambda_ <= 2.0))
        assert torch.all((loss.rho >= 0.1) & (loss.rho <= torch.tensor(0.9)))


def test_multipliers_only_grow_without_and_can_fall_with_a_tolerance():
    _, labels = batch((2, 8, 8), 3)
    at_target = crac.functional.neighbourhood_proportions(labels, 3, border="background")
    for tolerance, falls in ((0.0, False), (0.5, True)):
        loss = crac.CRaCLoss(3, inner_scale=1.0, tolerance=tolerance, lambda_=1.0)
        before = loss.lambda_.clone()
        loss.observe(at_target, labels)
        loss.update_multipliers()
        assert bool((loss.lambda_[1] < before[1]).all()) == falls
        assert torch.all(loss.lambda_ <= before + 1e-6)


def test_a_region_nobody_saw_keeps_its_multipliers():
    loss = filled(crac.CRaCLoss(3, preset="paper", rho_every=1))
    before = copy.deepcopy(loss.state_dict())
    for _ in range(2):
        loss.observe(torch.randn(1, 3, 6, 6), torch.ones(1, 6, 6, dtype=torch.int64))
        loss.update_multipliers()
    assert torch.equal(loss.lambda_[1], before["lambda_"][1])
    assert torch.equal(loss.rho[1], before["rho"][1])
    assert torch.all(loss.lambda_[0] > before["lambda_"][0])


def test_rho_grows_only_when_the_constraint_does_not_improve():
    logits, labels = batch((2, 8, 8), 3)
    loss = crac.CRaCLoss(3, rho_every=2, inner_scale=0.0, outer_scale=0.0)
    for size, grown in ((1.0, False), (0.8, False), (0.8, False), (0.8, True)):  # steps 2 and 4 are tested
        before = loss.rho.clone()
        loss.observe(size * logits, labels)
        loss.update_multipliers()
        assert torch.all((loss.rho > before) == grown)


def test_splitting_the_validation_set_changes_nothing():
    logits, labels = batch((6, 9, 9), 4)
    states = []
    for step in (1, 2, 6):
        loss = filled(crac.CRaCLoss(4))
        for start in range(0, 6, step):
            loss.observe(logits[start : start + step], labels[start : start + step])
        loss.update_multipliers()
        states.append(loss.state_dict())
    for other in states[1:]:
        torch.testing.assert_close(other, states[0])


def test_observe_takes_no_gradient_and_leaves_the_multipliers():
    logits, labels = batch((1, 5, 5), 3)
    logits.requires_grad_()
    loss = crac.CRaCLoss(3)
    before = copy.deepcopy(loss.state_dict())
    loss.observe(logits, labels)
    assert all(torch.equal(loss.state_dict()[key], value) for key, value in before.items())
    assert not any(part.requires_grad for part in loss.multipliers.observed)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_observing_values_that_are_not_finite(bad):
    logits, labels = batch((1, 5, 5), 3)
    loss = crac.CRaCLoss(3)
    loss.observe(logits, labels)
    broken = logits.clone()
    broken[0, 1, 2, 2] = bad
    with pytest.raises(ValueError, match="logits given to observe must be finite; got NaN or infinite values"):
        loss.observe(broken, labels)
    alone = crac.CRaCLoss(3)
    alone.observe(logits, labels)
    for one in (loss, alone):
        one.update_multipliers()
    assert torch.equal(loss.lambda_, alone.lambda_)  # the broken batch left no trace


def test_update_before_observe():
    loss = crac.CRaCLoss(3)
    with pytest.raises(ValueError, match=r"update_multipliers needs .* call observe\(logits, labels\) first"):
        loss.update_multipliers()
    loss.observe(*batch((1, 5, 5), 3))
    loss.update_multipliers()
    with pytest.raises(ValueError, match="update_multipliers needs"):
        loss.update_multipliers()


def test_state_survives_moves_copies_and_a_restart():
    logits, labels = batch((2, 8, 8), 3)
    loss = filled(crac.CRaCLoss(3, rho_every=2))
    expected = copy.deepcopy(loss.state_dict())
    assert {"lambda_", "rho"} <= set(expected)
    for moved in (loss.half(), loss.to(torch.bfloat16), loss.double(), loss.to("cpu", torch.float16)):
        assert all(torch.equal(moved.state_dict()[key], value) for key, value in expected.items())
        assert moved.lambda_.dtype == moved.rho.dtype == torch.float32
    resumed = []
    for make in (copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x)), None):
        loss = filled(crac.CRaCLoss(3, rho_every=2))
        loss.observe(logits, labels)
        loss.update_multipliers()
        if make is None:
            state, loss = loss.state_dict(), crac.CRaCLoss(3, rho_every=2)
            loss.load_state_dict(state)
        else:
            loss = make(loss)
        loss.observe(2 * logits, labels)
        loss.update_multipliers()  # rho's test needs the epoch count and the constraint of the epoch before
        resumed.append(loss.state_dict())
    assert torch.all(resumed[0]["rho"] > expected["rho"])
    for other in resumed[1:]:
        assert all(torch.equal(other[key], value) for key, value in resumed[0].items())


def _observe_half(rank, rendezvous, folder, average, split):
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=2)
    logits, labels = batch((4, 8, 8), 3)
    labels[2:][labels[2:] == 2] = 1  # the second rank sees no pixel of class 2
    loss = filled(crac.CRaCLoss(3, average=average, rho_every=1))
    for epoch in range(3):
        mine = slice(0, split) if rank == 0 else slice(split, 4)
        if len(labels[mine]):
            loss.observe((epoch + 1) * logits[mine], labels[mine])
        loss.update_multipliers()
    torch.save(loss.state_dict(), f"{folder}/{rank}.pt")
    torch.distributed.destroy_process_group()


@pytest.mark.slow
@pytest.mark.parametrize(("average", "split"), [("all", 2), ("region", 2), ("region", 4)])
def test_two_ranks_equal_one(tmp_path, average, split):
    mp.spawn(_observe_half, (tmp_path / "rendezvous", tmp_path, average, split), nprocs=2)
    logits, labels = batch((4, 8, 8), 3)
    labels[2:][labels[2:] == 2] = 1
    alone = filled(crac.CRaCLoss(3, average=average, rho_every=1))
    for epoch in range(3):
        alone.observe((epoch + 1) * logits, labels)
        alone.update_multipliers()
    assert torch.all(alone.rho > filled(crac.CRaCLoss(3)).rho)
    for rank in range(2):
        state = torch.load(tmp_path / f"{rank}.pt", weights_only=True)
        for key, value in alone.state_dict().items():
            torch.testing.assert_close(state[key], value, rtol=1e-6, atol=0)


@pytest.mark.slow
@pytest.mark.usefixtures("fresh_compiler")
def test_crac_through_inductor_sees_updated_multipliers():
    logits, labels = batches.batch()
    loss = crac.CRaCLoss(3)
    compiled = torch.compile(loss, fullgraph=True)
    for _ in range(3):
        torch.testing.assert_close(batches.gradient(compiled, logits, labels), batches.gradient(loss, logits, labels))
        loss.observe(logits, labels)
        loss.update_multipliers()
