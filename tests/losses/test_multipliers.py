"""The multipliers as an object that a loss owns: names, precision, copies, checkpoints."""

import copy
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import crac
from common import ROOT
from crac.losses.multipliers import Multipliers
from crac.models.checkpoint import load_tensors, state_of

LEGACY = ROOT / "tests" / "legacy" / "0.1.0"
NAMES = ["lambda_", "rho", "previous", "steps"]


def learned(classes: int = 3, **options) -> crac.CRaCLoss:
    loss = crac.CRaCLoss(classes, **options)
    loss.observe(3 * torch.randn(2, classes, 8, 8), torch.randint(classes, (2, 8, 8)))
    loss.update_multipliers()
    return loss


def same(one: nn.Module, other: nn.Module) -> bool:
    states = one.state_dict(), other.state_dict()
    return list(states[0]) == list(states[1]) and all(
        torch.equal(states[0][name], states[1][name]) for name in states[0]
    )


def test_only_crac_owns_multipliers() -> None:
    for name in crac.METHODS:
        owned = crac.build_loss(name, 3).multipliers
        assert isinstance(owned, Multipliers) if name == "crac" else owned is None


def test_names_in_state_dicts_have_no_prefix() -> None:
    loss = learned()
    assert list(loss.state_dict()) == NAMES
    wrapper = nn.ModuleDict({"deep": crac.DeepSupervision(loss)})
    assert list(wrapper.state_dict()) == [f"deep.loss.{name}" for name in NAMES]
    fresh = nn.ModuleDict({"deep": crac.DeepSupervision(crac.CRaCLoss(3))})
    assert not same(fresh, wrapper)
    fresh.load_state_dict(wrapper.state_dict(), strict=True)
    assert same(fresh, wrapper)


def test_strict_loading_still_refuses() -> None:
    state = learned().state_dict()
    with pytest.raises(RuntimeError, match=r"Unexpected key.*other"):
        crac.CRaCLoss(3).load_state_dict({**state, "other": torch.zeros(1)})
    with pytest.raises(RuntimeError, match=r"size mismatch for .*lambda_"):
        crac.CRaCLoss(4).load_state_dict(state)
    del state["rho"]
    with pytest.raises(RuntimeError, match=r"Missing key.*rho"):
        crac.CRaCLoss(3).load_state_dict(state)


def test_loading_leaves_the_given_dictionary_alone() -> None:
    state = learned().state_dict()
    crac.CRaCLoss(3).load_state_dict(state)
    assert list(state) == NAMES


def test_buffers_can_be_assigned_through_the_loss() -> None:
    loss = crac.CRaCLoss(3)
    loss.lambda_, loss.rho = torch.full((2, 3), 0.5), torch.full((2, 3), 2.0)
    assert torch.equal(loss.state_dict()["lambda_"], torch.full((2, 3), 0.5))
    assert torch.equal(loss.multipliers.rho, torch.full((2, 3), 2.0))
    loss.lambda_ += 1
    assert torch.equal(loss.multipliers.lambda_, torch.full((2, 3), 1.5))


@pytest.mark.parametrize(
    "values",
    [torch.tensor([[0.1], [0.9]]).expand(2, 3), torch.rand(3, 2).T, torch.rand(2, 3, dtype=torch.float64)],
    ids=["expanded", "transposed", "double"],
)
def test_assigned_buffers_are_as_those_of_the_loss(values: torch.Tensor) -> None:
    loss = crac.CRaCLoss(3)
    loss.lambda_, loss.rho = values, values + 0.1
    assert torch.equal(loss.lambda_, values.float())
    for buffer in (loss.multipliers.lambda_, loss.multipliers.rho):
        assert buffer.dtype == torch.float32
        assert buffer.is_contiguous()
    loss.observe(torch.randn(1, 3, 6, 6), torch.randint(3, (1, 6, 6)))
    loss.update_multipliers()
    assert (loss.lambda_ > values).any()


@pytest.mark.parametrize("change", [nn.Module.half, nn.Module.double, nn.Module.bfloat16])
@pytest.mark.parametrize("name", crac.METHODS)
def test_no_buffer_of_a_loss_changes_its_precision(name: str, change) -> None:
    loss = crac.build_loss(name, 3, class_weights=[0.1, 0.2, 0.3])
    before = {key: value.clone() for key, value in loss.named_buffers()}
    network = nn.Sequential(nn.Conv2d(1, 3, 3), nn.ModuleDict({"loss": loss}))
    change(network)
    assert network[0].weight.dtype != torch.float32
    for key, value in loss.named_buffers():
        assert value.dtype == before[key].dtype
        assert torch.equal(value, before[key])


def test_copies_are_their_own() -> None:
    loss = learned()
    for other in (copy.deepcopy(loss), pickle.loads(pickle.dumps(loss))):
        assert same(other, loss)
        other.lambda_.mul_(2)
        assert not same(other, loss)


def test_a_copy_keeps_what_was_observed() -> None:
    loss = learned()
    loss.observe(torch.randn(1, 3, 6, 6), torch.randint(3, (1, 6, 6)))
    twin = copy.deepcopy(loss)
    for one in (loss, twin):
        one.update_multipliers()
    assert same(loss, twin)


def test_checkpoints_hold_and_fill_the_buffers() -> None:
    loss, fresh = learned(), crac.CRaCLoss(3)
    tensors = state_of(loss)
    assert list(tensors) == NAMES
    assert tensors["lambda_"].data_ptr() == loss.lambda_.data_ptr()
    load_tensors(fresh, tensors, Path("checkpoint"))
    assert same(fresh, loss)


@pytest.mark.parametrize(("radii", "names"), [((1,), ["inner", "outer"]), ((1, 3), ["region0", "region1", "region2"])])
def test_values_by_region(radii: tuple[int, ...], names: list[str]) -> None:
    loss = learned(radii=radii)
    found = loss.multipliers.by_region()
    assert list(found) == ["lambda", "rho"]
    assert list(found["lambda"]) == list(found["rho"]) == names
    assert list(found["lambda"].values()) == loss.lambda_.tolist()
    assert list(found["rho"].values()) == loss.rho.tolist()


def test_multipliers_of_0_1_0() -> None:
    """State that version 0.1.0 saved still loads and means the same."""
    loss = crac.CRaCLoss(3, radii=(1, 3))
    state = torch.load(LEGACY / "loss.pt", weights_only=True)
    loss.load_state_dict(state, strict=True)
    with np.load(LEGACY / "expected.npz") as expected:
        np.testing.assert_array_equal(loss.lambda_.numpy(), expected["lambda_"])
        np.testing.assert_array_equal(loss.rho.numpy(), expected["rho"])
        value = loss(torch.from_numpy(expected["logits"]), torch.from_numpy(expected["labels"]))
        assert value.item() == pytest.approx(float(expected["loss"]), rel=1e-6)
    saved = loss.state_dict()
    assert list(saved) == list(state)
    for name, tensor in state.items():
        assert torch.equal(saved[name], tensor)
