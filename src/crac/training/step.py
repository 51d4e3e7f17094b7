"""One step of the inner iteration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Generator, Tensor, nn

from crac.data import Batch
from crac.losses import ConsistencyLoss, SegmentationLoss
from crac.training.views import draw_view

if TYPE_CHECKING:
    from lightning.fabric import Fabric

__all__ = ["inner_step", "step_generator"]


def step_generator(device: torch.device, *numbers: int) -> Generator:
    """A generator that depends on these numbers alone: seed, epoch, step, rank."""
    seed = 0
    for number in numbers:
        seed = (seed * 1_000_003 + number + 1) % 2**63
    return Generator(device).manual_seed(seed)


def inner_step(
    fabric: Fabric, network: nn.Module, loss: SegmentationLoss, optimizer: Any, batch: Batch, generator: Generator
) -> Tensor:
    """One update of the weights; returns the loss without waiting for the device.

    Args:
        fabric: Scales and spreads the gradient as precision and devices ask.
        network: As set up by Fabric.
        loss: Any method.
        optimizer: As set up by Fabric.
        batch: On the device, in the network's memory format.
        generator: For methods that draw.
    """
    if isinstance(loss, ConsistencyLoss):
        value = _two_views(network, loss, batch, generator)
    else:
        value = loss(network(batch.images), batch.labels)
    fabric.backward(value)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return value.detach()


def _two_views(network: nn.Module, loss: ConsistencyLoss, batch: Batch, generator: Generator) -> Tensor:
    """Fit the first view to its labels; let both agree wherever both see the image."""
    (first, images), (second, other_images) = (draw_view(batch.images, generator) for _ in range(2))
    logits, other = network(torch.cat([images, other_images])).chunk(2)
    (aligned, seen), (other_aligned, other_seen) = first.invert(logits), second.invert(other)
    fitted: Tensor = loss(logits, first.apply_labels(batch.labels))
    return fitted + loss.consistency(aligned, other_aligned, batch.labels, seen & other_seen)
