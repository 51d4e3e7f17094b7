"""The fused loss as PyTorch sees it: an autograd function, and operators for compiled programs."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from crac.kernels.launch import evaluate, prepare_labels
from crac.kernels.setting import Setting

SMALL = 1 << 22
"""Below this many numbers, multiplying a gradient takes less time than starting a kernel that would look first."""


def fused(logits: Tensor, labels: Tensor, setting: Setting) -> Tensor:
    """See :func:`crac.kernels.fused_loss`."""
    if torch.compiler.is_compiling():
        return fused_value(logits, labels, *setting)  # type: ignore[no-any-return]
    if torch.is_grad_enabled() and logits.requires_grad:
        return FusedLoss.apply(logits, labels, setting)  # type: ignore[no-any-return, no-untyped-call]
    return _value(logits, labels, setting)


def _value(logits: Tensor, labels: Tensor, setting: Setting) -> Tensor:
    value = evaluate(logits, prepare_labels(labels, logits.shape[1], setting), setting, value=True)
    assert value is not None
    return value


class FusedLoss(torch.autograd.Function):
    """Value and gradient in one pass: the backward pass usually finds its work done."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor, setting: Setting) -> Tensor:
        """Return the loss, and keep the gradient for an upstream gradient of 1."""
        prepared = prepare_labels(labels, logits.shape[1], setting)
        # Half precision cannot hold a gradient before the loss scale has multiplied it.
        ctx.gradient = None if logits.dtype == torch.float16 else torch.empty_like(logits)
        value = evaluate(logits, prepared, setting, value=True, gradient=ctx.gradient)
        assert value is not None
        # What may change in place before the backward pass, for autograd to notice if it does.
        ctx.save_for_backward(logits, prepared.labels, setting.rho, setting.lambda_)
        ctx.prepared, ctx.setting = prepared, setting
        return value

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None, None]:
        """Return the gradient; where its own gradient is wanted, it refuses to give one."""
        # Small batches feel the time of the guard, so it stands only where it is needed.
        return (_guarded_gradient if torch.is_grad_enabled() else _gradient)(ctx, upstream), None, None


def _gradient(ctx: Any, upstream: Tensor) -> Tensor:
    """Return the kept gradient, rewritten on the device if the upstream gradient is not 1.

    It then belongs to the caller: a second backward pass computes it again.
    """
    logits = ctx.saved_tensors[0]
    gradient, ctx.gradient = ctx.gradient, None
    kept = gradient is not None
    if kept and gradient.dtype == torch.float32 and gradient.numel() < SMALL:
        return gradient.mul_(upstream)  # type: ignore[no-any-return]
    if not kept:
        gradient = torch.empty_like(logits)
    evaluate(logits, ctx.prepared, ctx.setting, gradient=gradient, upstream=upstream, skip_unit=kept)
    return gradient  # type: ignore[no-any-return]


_guarded_gradient = once_differentiable(_gradient)

ARGUMENTS = (
    "Tensor logits, Tensor labels, "
    "Tensor? rho, Tensor? lambda_, Tensor? scales, Tensor? class_weights, Tensor? regions, float[]? rings, bool fit, "
    "str penalty, float weight, float tolerance, int radius, bool replicate, int? ignore_index, "
    "float smoothing, int? near"
)
"""Arguments of the operators: a batch, then the fields of :class:`Setting`."""


@torch.library.custom_op("crac::fused_value", mutates_args=(), schema=f"({ARGUMENTS}) -> Tensor")
def fused_value(logits: Tensor, labels: Tensor, *setting: Any) -> Tensor:
    """Return the loss alone; compiled programs compute the gradient in their backward graph."""
    return _value(logits, labels, Setting(*setting))


@torch.library.custom_op("crac::fused_gradient", mutates_args=(), schema=f"(Tensor upstream, {ARGUMENTS}) -> Tensor")
def fused_gradient(upstream: Tensor, logits: Tensor, labels: Tensor, *setting: Any) -> Tensor:
    """Return the gradient of :func:`fused_value` times ``upstream``."""
    chosen = Setting(*setting)
    gradient = torch.empty_like(logits)
    evaluate(logits, prepare_labels(labels, logits.shape[1], chosen), chosen, gradient=gradient, upstream=upstream)
    return gradient


@fused_value.register_fake
def _(logits: Tensor, *_: Any) -> Tensor:
    return logits.new_empty((), dtype=torch.float32)


@fused_gradient.register_fake
def _(upstream: Tensor, logits: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(logits)


def _remember(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:7])
    ctx.constants = inputs[7:]


def _backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
    gradient = fused_gradient(upstream, *ctx.saved_tensors, *ctx.constants)
    return (gradient, *[None] * (1 + len(Setting._fields)))


fused_value.register_autograd(_backward, setup_context=_remember)
