"""Labels are narrowed before a launch, and stay what they are."""

import pytest
import torch
from tests.kernels.cases import PLAIN

import crac
from agreement import disagreements
from crac import kernels
from crac.kernels import launch

pytestmark = pytest.mark.usefixtures("_forced_kernels")


@pytest.mark.parametrize("ignore_index", [None, -1])
@pytest.mark.parametrize("layout", ["contiguous", "strided"])
def test_wide_labels_are_narrowed(
    ignore_index: int | None, layout: str, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "NARROW_FROM", 1)
    case = PLAIN | {"ignore_index": ignore_index, "layout": layout, "weighted": ignore_index is not None}
    assert disagreements(case, device) == []


@pytest.mark.parametrize("narrow_from", [1, 1 << 21])
def test_a_label_that_is_no_class_shows(narrow_from: int, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "NARROW_FROM", narrow_from)
    loss = crac.CRaCLoss(3).to(device)
    logits = torch.randn(1, 3, 4, 4, device=device)
    labels = torch.zeros(1, 4, 4, dtype=torch.int64, device=device)
    labels[0, 2, 1] = 3
    setting = loss.setting(logits, labels)
    assert setting is not None
    assert kernels.fused_loss(logits, labels, setting).isnan()


@pytest.mark.parametrize("name", ["crac", "nacl", "svls"])
def test_weights_and_multipliers_of_any_layout(name: str, device: str) -> None:
    table = torch.tensor([[1.0, 9.0], [2.0, 9.0], [3.0, 9.0]], device=device)
    loss = crac.build_loss(name, 3, class_weights=table[:, 0]).to(device)
    logits, labels = torch.randn(2, 3, 6, 7, device=device), torch.randint(3, (2, 6, 7), device=device)
    if isinstance(loss, crac.CRaCLoss):
        loss.lambda_ = table.T
        loss.rho = table[:, :1].expand(3, 2).T
    found = loss(logits, labels)
    kernels.mode = "off"
    torch.testing.assert_close(found, loss(logits, labels), rtol=1e-5, atol=0)


@pytest.mark.parametrize("layout", [torch.channels_last, torch.contiguous_format])
def test_planes_too_large_for_32_bits_are_left_to_the_eager_path(layout: torch.memory_format) -> None:
    """With channels innermost the last pixel of a plane lies classes x pixels away from the first."""
    logits = torch.empty(1, 64, 6000, 6000, dtype=torch.bfloat16, device="meta").to(memory_format=layout)
    labels = torch.empty(1, 6000, 6000, dtype=torch.uint8, device="meta")
    assert kernels.usable(logits, labels, 1, None) is (layout == torch.contiguous_format)
    assert kernels.usable(logits[..., :5000, :5000], labels[..., :5000, :5000], 1, None) is True
