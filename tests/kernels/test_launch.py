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
