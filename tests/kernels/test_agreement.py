"""The kernels compute what the eager path computes."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kernels.cases import PLAIN

import crac
from agreement import CHOICES, disagreements
from crac import kernels

pytestmark = pytest.mark.usefixtures("_forced_kernels")


@pytest.mark.parametrize(
    "change",
    [{name: choice} for name, choices in CHOICES.items() for choice in choices if choice != PLAIN[name]],
    ids=lambda change: "-".join(map(str, *change.values())) if "size" in change else str(*change.values()),
)
def test_each_choice(change: dict[str, Any], device: str) -> None:
    assert disagreements(PLAIN | change, device) == []


@settings(max_examples=12)
@given(
    case=st.fixed_dictionaries({name: st.sampled_from(choices) for name, choices in CHOICES.items()}),
    seed=st.integers(0, 2**31),
)
def test_every_combination(case: dict[str, Any], seed: int) -> None:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    assert disagreements(case, device, seed) == []


@pytest.mark.parametrize("border", ["replicate", "background"])
def test_64_classes(border: str, device: str) -> None:
    assert disagreements(PLAIN | {"classes": 64, "size": (5, 7), "batch": 1, "border": border}, device) == []


def test_logits_on_their_targets_have_no_slope(device: str) -> None:
    loss = crac.CRaCLoss(3, inner_scale=5, outer_scale=1).to(device)
    labels = torch.zeros(1, 6, 6, dtype=torch.int64, device=device)
    labels[..., 3:] = 1
    region = crac.functional.region_map(labels, "background")
    prior = crac.functional.neighbourhood_proportions(labels, 3, "background")
    logits = (prior * loss.scales[region.long()].unsqueeze(1)).requires_grad_()
    (fused,) = torch.autograd.grad(loss(logits, labels), logits)
    kernels.mode = "off"
    (eager,) = torch.autograd.grad(loss(logits, labels), logits)
    inner = (region == 0).unsqueeze(1).expand_as(logits)
    torch.testing.assert_close(fused[inner], eager[inner], rtol=1e-5, atol=1e-8)


def test_no_valid_pixel(device: str) -> None:
    loss = crac.CRaCLoss(3, ignore_index=7, class_weights=[1.0, 2.0, 3.0]).to(device)
    logits = torch.randn(1, 3, 4, 4, device=device, requires_grad=True)
    value = loss(logits, torch.full((1, 4, 4), 7, device=device))
    value.backward()
    assert value.item() == 0
    assert not logits.grad.any()


def test_an_ignored_pixel_may_hold_an_infinity(device: str) -> None:
    loss = crac.CRaCLoss(3, ignore_index=7).to(device)
    logits = torch.randn(1, 3, 4, 4, device=device)
    labels = torch.randint(3, (1, 4, 4), device=device)
    labels[0, 0, 0] = 7
    before = loss(logits, labels)
    logits[0, 1, 0, 0] = torch.inf
    logits.requires_grad_()
    value = loss(logits, labels)
    value.backward()
    assert value.item() == before.item()
    assert not logits.grad[0, :, 0, 0].any()
    assert logits.grad.isfinite().all()


@pytest.mark.parametrize("preset", ["released", "signed"])
def test_deep_supervision_of_volumes(preset: str, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every level of a network whose voxels are no cubes, in half precision and channels last, with Dice beside it."""
    generator = torch.Generator(device).manual_seed(0)
    loss = crac.CRaCLoss(3, preset=preset, dice_weight=1.0).to(device)
    loss.lambda_.uniform_(0.1, 1, generator=generator)
    labels = torch.randint(3, (2, 4, 8, 12), device=device, generator=generator)
    outputs = [
        torch.randn(2, 3, *size, device=device, generator=generator)
        .to(torch.bfloat16, memory_format=torch.channels_last_3d)
        .requires_grad_()
        for size in ((4, 8, 12), (4, 4, 6), (2, 2, 3))
    ]
    found = []
    for mode in ("force", "off"):
        monkeypatch.setattr(kernels, "mode", mode)
        value = crac.DeepSupervision(loss)(outputs, labels)
        found.append([value, *torch.autograd.grad(value, outputs)])
    torch.testing.assert_close(*found, rtol=2e-2, atol=1e-5)
    torch.testing.assert_close(found[0][0], found[1][0], rtol=1e-5, atol=1e-6)
