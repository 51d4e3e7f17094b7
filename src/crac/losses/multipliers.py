"""Multipliers and penalty weights, one per class and region, and the outer step that adapts them."""

from collections.abc import Callable
from typing import Any, Literal, Self

import torch
import torch.distributed as dist
from torch import Tensor, nn

from crac.errors import InputError, check_number, one_of

Average = Literal["all", "region"]
AVERAGES = ("all", "region")


class FixedPrecision(nn.Module):
    """A module whose buffers move to other devices with it but never change their dtype.

    ``network.half()`` must not round the multipliers of a loss inside the network: a multiplier in ``float16`` is
    another multiplier.
    """

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        before = dict(self._buffers)
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name, buffer in before.items():
            after = self._buffers[name]
            if buffer is not None and after is not None and after.dtype != buffer.dtype:
                self._buffers[name] = buffer.to(after.device)
        return self


class Multipliers(FixedPrecision):
    """State of the augmented Lagrangian, owned by a loss as ``loss.multipliers``.

    During validation the loss hands :meth:`accumulate` the sums over each region's pixels; :meth:`update` then takes
    the outer step, over all ranks when ``torch.distributed`` is initialised. In the ``state_dict`` of the loss the
    buffers stand under their own names, ``lambda_`` rather than ``multipliers.lambda_``.

    Args:
        num_classes: ``K``.
        regions: ``R``.
        average: What a region's sum is divided by: ``"all"`` valid pixels, those of other regions entering with a
            constraint of 0 (released code), or the pixels of the ``"region"`` (paper's text).
        lambdas: Initial, smallest and largest multiplier.
        rhos: Initial, smallest and largest penalty weight.
        gamma: Growth of ``rho`` when the constraint improved too little.
        mu: "Too little" means: the mean constraint exceeds ``mu`` times that of the epoch before.
        rho_every: ``rho`` is reconsidered every so many outer steps.

    Attributes:
        lambda_: Multipliers, ``(R, K)`` in ``float32``.
        rho: Penalty weights, ``(R, K)`` in ``float32``.
        previous: Mean constraint of the epoch before, ``(R, K)``; infinite before the first.
        steps: Number of outer steps taken.
    """

    lambda_: Tensor
    rho: Tensor
    previous: Tensor
    steps: Tensor

    def __init__(
        self,
        num_classes: int,
        regions: int,
        average: Average,
        lambdas: tuple[float, float, float],
        rhos: tuple[float, float, float],
        gamma: float,
        mu: float,
        rho_every: int,
    ) -> None:
        super().__init__()
        if average not in AVERAGES:
            raise one_of("average", average, AVERAGES)
        (lambda_, lambda_min, lambda_max), (rho, rho_min, rho_max) = lambdas, rhos
        check_number("lambda_min", lambda_min, least=0)
        check_number("lambda_max", lambda_max, least=lambda_min)
        check_number("lambda_", lambda_, least=lambda_min, most=lambda_max)
        check_number("rho_min", rho_min, above=0)
        check_number("rho_max", rho_max, least=rho_min)
        check_number("rho", rho, least=rho_min, most=rho_max)
        check_number("gamma", gamma, least=1)
        check_number("mu", mu, above=0)
        check_number("rho_every", rho_every, least=1, whole=True)
        self.average, self.gamma, self.mu, self.rho_every = average, gamma, mu, rho_every
        self.lambda_bounds, self.rho_bounds = (lambda_min, lambda_max), (rho_min, rho_max)
        shape = (regions, num_classes)
        self.register_buffer("lambda_", torch.full(shape, float(lambda_)))
        self.register_buffer("rho", torch.full(shape, float(rho)))
        # Infinite, so that rho cannot grow on the first epoch.
        self.register_buffer("previous", torch.full(shape, torch.inf))
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))
        self.observed: tuple[Tensor, Tensor] | None = None

    def by_region(self) -> dict[str, dict[str, list[float]]]:
        """Return ``"lambda"`` and ``"rho"`` -> name of a region -> one value per class.

        Two regions are called ``inner`` and ``outer``; more are numbered from the inside to the boundary.
        """
        regions = len(self.lambda_)
        names = ["inner", "outer"] if regions == 2 else [f"region{number}" for number in range(regions)]
        both = {"lambda": self.lambda_, "rho": self.rho}
        return {kind: dict(zip(names, values.tolist(), strict=True)) for kind, values in both.items()}

    def accumulate(self, sums: Tensor, counts: Tensor) -> None:
        """Add the sums ``(2, R, K)`` of constraint and derivative over the pixels of each region, and their counts."""
        if sums.device.type == "cpu":
            _check_finite(sums)
        if self.observed is not None:
            sums, counts = sums + self.observed[0], counts + self.observed[1]
        self.observed = sums, counts

    @torch.no_grad()
    def update(self) -> None:
        """Take the outer step from everything observed since the last one, over all ranks.

        Raises:
            InputError: Nothing was observed, or the logits observed were not finite.
        """
        sums, counts = self.observation()
        total = counts.sum()
        counts = counts.unsqueeze(1)
        lambda_ = self.lambda_.to(sums.dtype)
        if self.average == "all":
            # Pixels of other regions have a constraint of 0, where every penalty's derivative is lambda.
            constraint, derivative = sums[0] / total, (sums[1] + (total - counts) * lambda_) / total
            seen = torch.ones_like(counts, dtype=torch.bool)
        else:
            constraint, derivative = sums / counts.clamp(min=1)
            seen = counts > 0
        grow = seen & (constraint > self.mu * self.previous) & (self.steps % self.rho_every == 0)
        self.lambda_.copy_(torch.where(seen, derivative, lambda_).clamp(*self.lambda_bounds))
        self.rho.copy_(torch.where(grow, self.gamma * self.rho, self.rho).clamp(*self.rho_bounds))
        self.previous.copy_(torch.where(seen, constraint, self.previous))

    def observation(self) -> tuple[Tensor, Tensor]:
        """Return the sums and counts observed since the last outer step, over all ranks, and begin the next."""
        sums, counts = self._reduced()
        self.observed = None
        if counts.sum() == 0:
            raise InputError("update_multipliers needs at least one labelled pixel; call observe(logits, labels) first")
        _check_finite(sums)
        self.steps += 1
        return sums, counts

    def _reduced(self) -> tuple[Tensor, Tensor]:
        """Return the sums and counts of all ranks, in ``float64`` and on the multipliers' device."""
        device = self.lambda_.device
        dtype = torch.float32 if device.type == "mps" else torch.float64
        regions, classes = self.lambda_.shape
        packed = torch.zeros(2 * regions * classes + regions, dtype=dtype, device=device)
        if self.observed is not None:
            packed += torch.cat([part.flatten().to(device, dtype) for part in self.observed])
        if dist.is_available() and dist.is_initialized():
            dist.all_reduce(packed)
        return packed[:-regions].view(2, regions, classes), packed[-regions:]

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        # The loss that owns the multipliers puts the prefix back when it loads its state.
        super()._save_to_state_dict(destination, prefix.removesuffix("multipliers."), keep_vars)


def _check_finite(sums: Tensor) -> None:
    if not sums.isfinite().all():
        raise InputError("logits given to observe must be finite; got NaN or infinite values")
