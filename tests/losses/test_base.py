"""Which terms a call computes, and that all of them reach the fused kernel the same way."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import crac
from crac import kernels
from crac.integrations.nnunet.loss import CalibratedLoss, Fit
from crac.kernels import launch
from crac.kernels import start as starting

SHAPES = [(2, 8, 12), (1, 4, 6, 8)]
OPTIONS: list[dict[str, Any]] = [{}, {"ignore_index": 255}, {"class_weights": [0.5, 2.0, 1.0], "ignore_index": -1}]
FUSED = {"crac": {}, "nacl": {}, "svls": {}}


@pytest.fixture
def started(_forced_kernels: None, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the kernels as they are started, in order."""
    names: list[str] = []

    def start(kernel: Any, *rest: Any) -> None:
        names.append(kernel.__name__)
        starting.start(kernel, *rest)

    monkeypatch.setattr(launch, "start", start)
    return names


def make(name: str, device: str, **options: Any) -> crac.losses.SegmentationLoss:
    loss = crac.build_loss(name, 3, **options).to(device)
    if name == "crac":
        loss.lambda_.uniform_(0.1, 1)
        loss.rho.uniform_(0.1, 2)
    return loss


def batch(shape: tuple[int, ...], options: dict[str, Any], device: str) -> tuple[Tensor, Tensor]:
    logits = 3 * torch.randn(shape[0], 3, *shape[1:], device=device)
    labels = torch.randint(3, shape, device=device, dtype=torch.int16)
    ignored = options.get("ignore_index")
    if ignored is not None:
        labels[torch.rand(shape, device=device) < 0.2] = ignored
    return logits, labels


def both(call: Callable[..., Tensor], logits: list[Tensor], *rest: Any) -> tuple[Tensor, list[Tensor]]:
    inputs = [one.detach().requires_grad_() for one in logits]
    value = call(inputs if len(inputs) > 1 else inputs[0], *rest)
    return value.detach(), list(torch.autograd.grad(value, inputs))


def assert_fused(started: list[str], call: Callable[..., Tensor], launches: int, logits: list[Tensor], *rest: Any):
    """The loss kernel starts as often as said, and gives value and gradients of the eager path."""
    started.clear()
    value, gradients = both(call, logits, *rest)
    assert started.count("fused_loss") == launches
    started.clear()
    kernels.mode = "off"
    expected, reference = both(call, logits, *rest)
    kernels.mode = "force"
    assert not started
    torch.testing.assert_close(value, expected, rtol=1e-5, atol=1e-7)
    for gradient, wanted in zip(gradients, reference, strict=True):
        torch.testing.assert_close(gradient, wanted, rtol=1e-5, atol=1e-5 * wanted.abs().max().item())
        assert wanted.any()


@pytest.mark.parametrize("options", OPTIONS, ids=["plain", "ignore", "weights"])
@pytest.mark.parametrize("shape", SHAPES, ids=["2d", "3d"])
@pytest.mark.parametrize(("name", "part"), [(n, p) for n in FUSED for p in ("forward", "supervised", "fit", "penalty")])
def test_every_part_goes_through_the_kernel(
    name: str, part: str, shape: tuple[int, ...], options: dict[str, Any], started: list[str], device: str
) -> None:
    loss = make(name, device, **options)
    logits, labels = batch(shape, options, device)
    if (name, part) == ("svls", "penalty"):
        assert loss.penalty(logits, labels) == 0
        assert not started
    else:
        assert_fused(started, getattr(loss, part), 1, [logits], labels)


@pytest.mark.parametrize("options", OPTIONS, ids=["plain", "ignore", "weights"])
@pytest.mark.parametrize("shape", SHAPES, ids=["2d", "3d"])
@pytest.mark.parametrize("name", FUSED)
def test_every_level_of_deep_supervision_goes_through_the_kernel(
    name: str, shape: tuple[int, ...], options: dict[str, Any], started: list[str], device: str
) -> None:
    loss = crac.DeepSupervision(make(name, device, **options))
    logits, labels = batch(shape, options, device)
    coarse = [torch.randn(shape[0], 3, *[size // step for size in shape[1:]], device=device) for step in (2, 4)]
    assert_fused(started, loss, 3, [logits, *coarse], labels)


@pytest.mark.parametrize("options", OPTIONS, ids=["plain", "ignore", "weights"])
@pytest.mark.parametrize("shape", SHAPES, ids=["2d", "3d"])
def test_nnunets_loss_goes_through_the_kernel(
    shape: tuple[int, ...], options: dict[str, Any], started: list[str], device: str
) -> None:
    logits, labels = batch(shape, options, device)
    target = labels.unsqueeze(1)

    class Level(nn.Module):
        """Stands for nnU-Net's deep supervision, over any loss."""

        def __init__(self, loss: nn.Module) -> None:
            super().__init__()
            self.loss = loss

        def forward(self, outputs: list[Tensor], targets: list[Tensor]) -> Tensor:
            return self.loss(outputs[0], targets[0]) + self.loss(outputs[1], targets[1]) / 2

    plain, svls = make("ce", device, **options), make("svls", device, **options)
    coarse = (slice(None), slice(None), *[slice(None, None, 2)] * (len(shape) - 1))
    outputs, targets = [logits, logits[coarse].contiguous()], [target, target[coarse]]
    penalised = CalibratedLoss(Level(Fit(plain)), make("crac", device, **options), 0.6)
    assert_fused(started, penalised, 1, outputs, targets)
    assert_fused(started, penalised, 1, outputs, [one.float() for one in targets])
    assert_fused(started, CalibratedLoss(Level(Fit(svls)), svls, 0.6), 2, outputs, targets)
    penalised.eval()
    started.clear()
    penalised(outputs, targets)
    assert started.count("fused_sums") == 1


def test_half_precision_starts_the_kernel_in_both_passes(started: list[str], device: str) -> None:
    loss = make("crac", device)
    logits, labels = batch((2, 8, 12), {}, device)
    logits = logits.half().requires_grad_()
    value = loss.penalty(logits, labels)
    assert started == ["fused_loss"]
    value.backward()
    assert started == ["fused_loss", "fused_loss"]


@pytest.mark.parametrize("part", ["forward", "supervised", "fit", "penalty"])
def test_parts_compile_to_one_graph(part: str, started: list[str], device: str) -> None:
    loss = make("crac", device, class_weights=[0.5, 2.0, 1.0])
    logits, labels = batch((2, 8, 12), {}, device)
    expected = both(getattr(loss, part), [logits], labels)
    torch.compiler.reset()
    compiled = torch.compile(lambda x, y: getattr(loss, part)(x, y), fullgraph=True, backend="aot_eager")
    started.clear()
    value, (gradient,) = both(compiled, [logits], labels)
    assert started.count("fused_loss") == 2  # value and gradient
    torch.testing.assert_close(value, expected[0])
    torch.testing.assert_close(gradient, expected[1][0])


@pytest.mark.parametrize("name", crac.METHODS)
def test_the_parts_add_up(name: str) -> None:
    loss = make(name, "cpu", dice_weight=0.7)
    logits, labels = batch((2, 8, 12), {}, "cpu")
    plain = make("ce", "cpu")
    dice = loss.supervised(logits, labels) - loss.fit(logits, labels)
    torch.testing.assert_close(dice, 0.7 * (make("ce", "cpu", dice_weight=1.0)(logits, labels) - plain(logits, labels)))
    whole = loss.supervised(logits, labels) + loss.penalty(logits, labels)
    torch.testing.assert_close(loss(logits, labels), whole)
    adds = name in ("ecp", "mbls", "nacl", "ml1ace", "crac")
    assert bool(loss.penalty(4 * logits, labels)) == adds
    if adds:
        assert torch.equal(loss.fit(logits, labels), plain(logits, labels))


@pytest.mark.parametrize("part", ["forward", "supervised", "fit", "penalty"])
def test_every_part_checks_its_input(part: str) -> None:
    call = getattr(make("crac", "cpu"), part)
    with pytest.raises(ValueError, match=r"labels must lie in 0..2; got 3"):
        call(torch.zeros(1, 3, 4, 4), torch.full((1, 4, 4), 3))
    with pytest.raises(ValueError, match="logits must have num_classes=3 channels"):
        call(torch.zeros(1, 4, 4, 4), torch.zeros(1, 4, 4, dtype=torch.uint8))
    half = torch.randn(1, 3, 4, 4).bfloat16()
    labels = torch.randint(3, (1, 1, 4, 4), dtype=torch.uint8)
    assert torch.equal(call(half, labels), call(half.float(), labels[:, 0].long()))


@pytest.mark.parametrize("options", [{}, {"class_weights": [0.5, 2.0, 1.0]}], ids=["plain", "weights"])
def test_no_label_is_ignored_unless_it_was_said(options: dict[str, Any]) -> None:
    """By itself, torch leaves out -100; on a GPU and in a compiled graph nobody else looks at labels."""
    loss, logits, labels = crac.build_loss("ce", 3, **options), torch.randn(1, 3, 2, 2), torch.zeros(1, 2, 2).long()
    labels[0, 0, 0] = -100
    with pytest.raises(IndexError, match="-100 is out of bounds"):
        loss.fit_term(logits, labels)
    kept = crac.build_loss("ce", 3, ignore_index=-100, **options)(logits, labels)
    first = crac.build_loss("ce", 3, **options)(logits[:, :, 1:], labels[:, 1:])
    second = crac.build_loss("ce", 3, **options)(logits[:, :, :1, 1:], labels[:, :1, 1:])
    torch.testing.assert_close(kept, (2 * first + second) / 3)


def test_labels_of_a_byte_are_compared_as_numbers() -> None:
    """Torch would compare a byte with 255 for -1, and with 44 for 300."""
    labels = torch.tensor([[[0, 255], [1, 2]]], dtype=torch.uint8)
    with pytest.raises(ValueError, match=r"labels must lie in 0..2 or ignore_index=-1; got 255"):
        crac.build_loss("ce", 3, ignore_index=-1)(torch.zeros(1, 3, 2, 2), labels)
    for classes, dtype in ((200, torch.int8), (300, torch.uint8)):
        logits, labels = torch.randn(1, classes, 2, 2), torch.randint(classes // 2 + 1, (1, 2, 2))
        loss = crac.build_loss("ce", classes)
        assert torch.equal(loss(logits, labels.clamp(max=120).to(dtype)), loss(logits, labels.clamp(max=120)))
