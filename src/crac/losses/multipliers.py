"""Multipliers and penalty weights, one per class and region, and the outer step that adapts them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, Self

import torch
import torch.distributed as dist
from torch import Tensor, nn

from crac.errors import InputError, one_of
from crac.functional.penalty import penalty as penalty_named

__all__ = ["AVERAGES", "Average", "Multipliers"]

Average = Literal["all", "region"]
AVERAGES = ("all", "region")


class Multipliers(nn.Module):
    """State of the augmented Lagrangian, to be mixed into a loss.

    ``lambda_`` and ``rho`` are ``(R, K)`` buffers in ``float32``, which ``.to(dtype)`` leaves alone. During
    validation the loss hands :meth:`accumulate` what each region's pixels say; :meth:`update_multipliers` then
    takes the outer step, over all ranks when ``torch.distributed`` is initialised.

    Args:
        num_classes: ``K``.
        regions: ``R``.
        penalty: Name of the penalty function, see :data:`crac.functional.PENALTIES`.
        average: What a region's sum is divided by: ``"all"`` valid pixels, those of other regions entering with a
            constraint of 0 (released code), or the pixels of the ``"region"`` (paper's text).
        lambda_: Initial multiplier.
        lambda_min: Smallest multiplier.
        lambda_max: Largest multiplier.
        rho: Initial penalty weight.
        rho_min: Smallest penalty weight.
        rho_max: Largest penalty weight.
        gamma: Growth of ``rho`` when the constraint improved too little.
        mu: "Too little" means: the mean constraint exceeds ``mu`` times that of the epoch before.
        rho_every: ``rho`` is reconsidered every so many outer steps.
        **options: Passed on to the loss this is mixed into.
    """

    lambda_: Tensor
    rho: Tensor
    previous: Tensor
    steps: Tensor

    def __init__(
        self,
        num_classes: int,
        *,
        regions: int = 2,
        penalty: str = "phr",
        average: Average = "all",
        lambda_: float = 1e-6,
        lambda_min: float = 1e-6,
        lambda_max: float = 1e6,
        rho: float = 0.1,
        rho_min: float = 0.1,
        rho_max: float = 10.0,
        gamma: float = 1.2,
        mu: float = 0.9,
        rho_every: int = 10,
        **options: Any,
    ) -> None:
        super().__init__(num_classes, **options)
        if average not in AVERAGES:
            raise one_of("average", average, AVERAGES)
        if not 0 <= lambda_min <= lambda_ <= lambda_max:
            raise InputError(f"lambda_ must lie in 0 <= {lambda_min=} <= lambda_ <= {lambda_max=}; got {lambda_!r}")
        if not 0 < rho_min <= rho <= rho_max:
            raise InputError(f"rho must lie in 0 < {rho_min=} <= rho <= {rho_max=}; got {rho!r}")
        if gamma < 1:
            raise InputError(f"gamma must be at least 1; got {gamma!r}")
        if mu <= 0:
            raise InputError(f"mu must be positive; got {mu!r}")
        if rho_every < 1:
            raise InputError(f"rho_every must be a whole number of at least 1; got {rho_every!r}")
        self.penalty_name = penalty
        self.penalty_function = penalty_named(penalty)
        self.average = average
        self.lambda_bounds = (lambda_min, lambda_max)
        self.rho_bounds = (rho_min, rho_max)
        self.gamma = gamma
        self.mu = mu
        self.rho_every = rho_every
        shape = (regions, num_classes)
        self.register_buffer("lambda_", torch.full(shape, lambda_))
        self.register_buffer("rho", torch.full(shape, rho))
        # The mean constraint of the epoch before: infinite before the first, so that rho cannot grow on it.
        self.register_buffer("previous", torch.full(shape, torch.inf))
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))
        self._observed: tuple[Tensor, Tensor] | None = None

    @property
    def regions(self) -> int:
        """``R``."""
        return self.lambda_.shape[0]

    def accumulate(self, sums: Tensor, counts: Tensor) -> None:
        """Add one validation batch.

        Args:
            sums: ``(2, R, K)``: over the pixels of each region, the constraint and the penalty's derivative.
            counts: ``(R,)`` pixels of each region.
        """
        if sums.device.type == "cpu":
            self._check_finite(sums)
        if self._observed is not None:
            sums, counts = sums + self._observed[0], counts + self._observed[1]
        self._observed = sums, counts

    @staticmethod
    def _check_finite(sums: Tensor) -> None:
        if not sums.isfinite().all():
            raise InputError("logits given to observe must be finite; got NaN or infinite values")

    def _reduced(self) -> tuple[Tensor, Tensor]:
        """What all ranks observed, in float64 and on the multipliers' device."""
        device = self.lambda_.device
        dtype = torch.float32 if device.type == "mps" else torch.float64
        regions, classes = self.lambda_.shape
        packed = torch.zeros(2 * regions * classes + regions, dtype=dtype, device=device)
        if self._observed is not None:
            packed += torch.cat([part.flatten().to(device, dtype) for part in self._observed])
        if dist.is_available() and dist.is_initialized():
            dist.all_reduce(packed)
        return packed[:-regions].view(2, regions, classes), packed[-regions:]

    @torch.no_grad()
    def update_multipliers(self) -> None:
        """Take the outer step from everything observed since the last one, over all ranks.

        Raises:
            InputError: Nothing was observed, or the logits observed were not finite.
        """
        sums, counts = self._reduced()
        self._observed = None
        total = counts.sum()
        if total == 0:
            raise InputError("update_multipliers needs at least one labelled pixel; call observe(logits, labels) first")
        self._check_finite(sums)
        counts = counts.unsqueeze(1)
        lambda_ = self.lambda_.to(sums.dtype)
        if self.average == "all":
            # Pixels of other regions have a constraint of 0, where every penalty's derivative is lambda.
            constraint, derivative = sums[0] / total, (sums[1] + (total - counts) * lambda_) / total
            seen = torch.ones_like(counts, dtype=torch.bool)
        else:
            constraint, derivative = sums / counts.clamp(min=1)
            seen = counts > 0
        self.steps += 1
        grow = seen & (constraint > self.mu * self.previous) & (self.steps % self.rho_every == 0)
        self.lambda_.copy_(torch.where(seen, derivative, lambda_).clamp(*self.lambda_bounds))
        self.rho.copy_(torch.where(grow, self.gamma * self.rho, self.rho).clamp(*self.rho_bounds))
        self.previous.copy_(torch.where(seen, constraint, self.previous))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Move with the module, but never change precision: a multiplier rounded to fp16 is another multiplier."""
        before = dict(self._buffers)
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name, buffer in before.items():
            after = self._buffers[name]
            if buffer is not None and after is not None and after.dtype != buffer.dtype:
                self._buffers[name] = buffer.to(after.device)
        return self
