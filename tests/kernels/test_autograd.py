"""The kernels under autograd, ``torch.compile`` and the switches that choose them."""

import copy

import pytest
import torch
from torch import Tensor

import crac
from crac import kernels

pytestmark = pytest.mark.usefixtures("_forced_kernels")
Batch = tuple[crac.CRaCLoss, Tensor, Tensor]


@pytest.fixture
def batch(device: str) -> Batch:
    loss = crac.CRaCLoss(4).to(device)
    loss.lambda_.uniform_(0, 1)
    logits = torch.randn(2, 4, 6, 9, device=device, requires_grad=True)
    return loss, logits, torch.randint(4, (2, 6, 9), device=device)


def eager(loss: crac.CRaCLoss, logits: Tensor, labels: Tensor) -> Tensor:
    chosen, kernels.mode = kernels.mode, "off"
    (gradient,) = torch.autograd.grad(loss(logits, labels), logits)
    kernels.mode = chosen
    return gradient


def assert_same(gradient: Tensor | None, expected: Tensor) -> None:
    assert gradient is not None
    torch.testing.assert_close(gradient, expected, rtol=1e-5, atol=1e-5 * expected.abs().max().item())


def test_backward_twice(batch: Batch) -> None:
    loss, logits, labels = batch
    expected = eager(loss, logits, labels)
    value = loss(logits, labels)
    (first,) = torch.autograd.grad(3 * value, logits, retain_graph=True)
    (second,) = torch.autograd.grad(value, logits, retain_graph=True)
    (third,) = torch.autograd.grad(0 * value, logits)
    assert_same(first, 3 * expected)
    assert_same(second, expected)
    assert not third.any()


def test_two_losses_on_one_tensor(batch: Batch) -> None:
    loss, logits, labels = batch
    other = crac.build_loss("nacl", 4).to(logits.device)
    expected = eager(loss, logits, labels) + 0.5 * eager(other, logits, labels)
    (loss(logits, labels) + 0.5 * other(logits, labels)).backward()
    assert_same(logits.grad, expected)
    loss(logits, labels).backward()  # adds to what is there
    assert_same(logits.grad, expected + eager(loss, logits, labels))


def test_multipliers_must_not_change_before_the_backward_pass(batch: Batch) -> None:
    loss, logits, labels = batch
    value = loss(logits, labels)
    loss.lambda_.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        value.backward()


def test_a_second_derivative_is_refused(batch: Batch) -> None:
    loss, logits, labels = batch
    expected = eager(loss, logits, labels)
    (gradient,) = torch.autograd.grad(loss(logits, labels) ** 2, logits, create_graph=True)
    assert_same(gradient.detach(), 2 * loss(logits, labels).detach() * expected)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()


def test_without_gradient(batch: Batch) -> None:
    loss, logits, labels = batch
    with torch.no_grad():
        value = loss(logits, labels)
    assert not value.requires_grad
    assert value.item() == pytest.approx(loss(logits, labels).item(), rel=1e-6)


def test_half_precision_gradient_survives_a_loss_scale(batch: Batch) -> None:
    loss, logits, labels = batch
    half = (logits / 100).detach().half().requires_grad_()
    expected = eager(loss, half.detach().double().requires_grad_(), labels)
    # One pixel's share of a large batch: 0 in half precision, were it rounded before the scale is applied.
    (gradient,) = torch.autograd.grad(loss(half, labels) * 1e-6 * 65536, half)
    torch.testing.assert_close(gradient.double(), expected * 0.065536, rtol=2e-3, atol=1e-7)


def test_labels_may_have_a_channel(batch: Batch) -> None:
    loss, logits, labels = batch
    assert loss(logits, labels.unsqueeze(1)).item() == loss(logits, labels).item()


def test_observe_feeds_the_outer_step(batch: Batch) -> None:
    loss, logits, labels = batch
    twin = copy.deepcopy(loss)
    loss.observe(logits, labels)
    loss.update_multipliers()
    kernels.mode = "off"
    twin.observe(logits, labels)
    twin.update_multipliers()
    torch.testing.assert_close(loss.lambda_, twin.lambda_)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_compiled_in_one_graph(batch: Batch, dtype: torch.dtype) -> None:
    loss, logits, labels = batch
    logits = logits.detach().to(dtype).requires_grad_()
    expected = loss(logits, labels)
    (gradient,) = torch.autograd.grad(2 * expected, logits)
    torch.compiler.reset()
    compiled = torch.compile(lambda x, y: 2 * loss(x, y), fullgraph=True, backend="aot_eager")
    value = compiled(logits, labels)
    assert value.item() == pytest.approx(2 * expected.item(), rel=1e-6)
    assert_same(torch.autograd.grad(value, logits)[0], gradient)


def test_the_operators_keep_their_promises(batch: Batch) -> None:
    from crac.kernels.autograd import fused_value

    loss, logits, labels = batch
    setting = loss.setting(logits, labels)
    assert setting is not None
    torch.library.opcheck(fused_value, (logits, labels, *setting))


@pytest.mark.parametrize(
    ("classes", "options", "dtype"),
    [
        (4, {}, torch.float64),
        (65, {}, torch.float32),
        (4, {"kernel_size": 7}, torch.float32),
        (4, {"ignore_index": 3}, torch.float32),
    ],
)
def test_what_no_kernel_computes_is_eager(
    classes: int, options: dict[str, int], dtype: torch.dtype, device: str
) -> None:
    loss = crac.CRaCLoss(classes, **options).to(device)
    logits = torch.randn(1, classes, 4, 5, dtype=dtype, device=device)
    labels = torch.randint(3, (1, 4, 5), device=device)
    assert loss.setting(logits, labels) is None
    assert loss(logits, labels).isfinite()


def test_the_kernel_is_chosen_on_cuda_only_and_can_be_turned_off(batch: Batch) -> None:
    loss, logits, labels = batch
    kernels.mode = "auto"
    assert (loss.setting(logits, labels) is not None) == logits.is_cuda
    kernels.mode = "off"
    assert loss.setting(logits, labels) is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_pixels_without_weight_pull_nowhere_however_the_loss_is_scaled(dtype: torch.dtype, device: str) -> None:
    loss = crac.build_loss("nacl", 3, class_weights=[0, 1, 1]).to(device)
    logits = torch.randn(1, 3, 5, 4, dtype=dtype, device=device, requires_grad=True)
    (2**16 * loss.supervised(logits, torch.zeros(1, 5, 4, dtype=torch.int64, device=device))).backward()
    assert not logits.grad.any()
