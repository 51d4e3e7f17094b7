"""A penalty on the distance of logits to targets, one class at a time.

The arithmetic is the same as on whole tensors, but its temporaries are of one class's size, which a CPU's cache holds,
and the gradient is computed on the way instead of from stored intermediates.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

Terms = Callable[[int, Tensor], tuple[Tensor, Tensor]]


def pays(logits: Tensor) -> bool:
    """Return whether to go class by class: on a CPU, unless a compiler fuses or ``float64`` wants more derivatives."""
    return logits.device.type == "cpu" and logits.dtype == torch.float32 and not torch.compiler.is_compiling()


def distance_penalty(logits: Tensor, target: Callable[[int], Tensor], terms: Terms, valid: Tensor | None) -> Tensor:
    """Return the sum over classes and pixels of a penalty of ``|logit - target|``, differentiable once, in the logits.

    Args:
        logits: ``(B, K, *S)``.
        target: The targets ``(B, *S)`` of a class.
        terms: Function of a class and its distances ``(B, *S)`` that returns the penalty and its derivative.
        valid: Boolean ``(B, *S)``: the pixels that count, ``None`` for all.
    """
    total: Tensor = _DistancePenalty.apply(logits, target, terms, valid)[0]  # type: ignore[no-untyped-call]
    return total


class _DistancePenalty(torch.autograd.Function):
    @staticmethod
    def forward(
        logits: Tensor, target: Callable[[int], Tensor], terms: Terms, valid: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        gradient = torch.empty_like(logits)
        sums = []
        for k in range(logits.shape[1]):
            offset = logits[:, k] - target(k)
            value, slope = terms(k, offset.abs())
            torch.mul(slope, offset.sign_(), out=gradient[:, k])
            if valid is not None:
                # Not a product: a masked pixel may hold an infinity.
                value = torch.where(valid, value, 0)
                gradient[:, k].masked_fill_(~valid, 0)
            sums.append(value.sum())
        return torch.stack(sums).sum(), gradient

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(output[1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor, _: Tensor) -> tuple[Tensor, None, None, None]:
        return ctx.saved_tensors[0] * upstream, None, None, None
