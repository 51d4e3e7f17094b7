"""Temperature scaling (Guo et al., ICML 2017): one number that divides all logits, fitted on the validation set."""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from crac.errors import InputError

LOWEST, HIGHEST = 0.05, 20.0
POINTS, PASSES = 17, 4
"""Each pass looks at this many temperatures and keeps the interval between two of them."""

Batches = Callable[[], Iterable[tuple[Tensor, Tensor]]]


@torch.no_grad()
def fit_temperature(batches: Batches) -> float:
    """Return the temperature between 0.05 and 20 with the lowest negative log-likelihood.

    The likelihood is convex in ``1 / T``, so its slope changes sign once: each pass over the data finds that place
    more closely, and at the end the slope is interpolated. Only ``POINTS`` sums are kept of the data.

    Args:
        batches: Called once a pass; yields logits ``(B, K, *S)`` and labels ``(B, *S)``.
    """
    low, high = 1 / HIGHEST, 1 / LOWEST
    for _ in range(PASSES):
        inverse = torch.logspace(0, 1, POINTS, base=high / low, dtype=torch.float64) * low
        slope = _slopes(batches(), inverse)
        if not slope.any():
            return 1.0  # right and saturated everywhere: any temperature does
        if slope[0] >= 0:
            return 1 / low
        if slope[-1] <= 0:
            return 1 / high
        index = int((slope < 0).sum())
        low, high = inverse[index - 1].item(), inverse[index].item()
        ends = slope[index - 1].item(), slope[index].item()
    return 1 / (low + (high - low) * ends[0] / (ends[0] - ends[1]))


def _slopes(batches: Iterable[tuple[Tensor, Tensor]], inverse: Tensor) -> Tensor:
    """Return the derivative of the negative log-likelihood at each ``1 / T``: expected minus labelled logit, summed."""
    total: Tensor | None = None
    for logits, labels in batches:
        logits = logits.float()
        # Relative to the labelled class, differences are small and exact where the model is right.
        logits = logits - logits.gather(1, labels.long().unsqueeze(1))
        parts = torch.stack([((logits * b).softmax(1) * logits).sum(dtype=torch.float64) for b in inverse.tolist()])
        total = parts if total is None else total + parts
    if total is None:
        raise InputError("batches must yield at least one batch; got none")
    return total.cpu()
