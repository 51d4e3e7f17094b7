"""One step of the inner iteration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Generator, Tensor, nn

from crac.data import Batch
from crac.losses import BWCRLoss, DeepSupervision, SegmentationLoss
from crac.training.views import draw_views, make_view

if TYPE_CHECKING:
    from lightning.fabric import Fabric


@dataclass
class InnerStep:
    """One update of the weights; returns the loss without waiting for the device.

    Args:
        fabric: Scales and spreads the gradient as precision and devices ask.
        network: The network, as Fabric has set it up.
        loss: Any method.
        optimizer: Its optimizer, as Fabric has set it up.
        clip_norm: Longest gradient; 0 for no limit.
    """

    fabric: Fabric
    network: nn.Module
    loss: SegmentationLoss
    optimizer: Any
    clip_norm: float = 0.0

    def __call__(self, batch: Batch, generator: Generator) -> Tensor:
        """Take a step on a batch on the device, in the network's memory format; methods that draw use the generator."""
        return self.update(step_inputs(self.loss, batch, generator))

    def update(self, inputs: tuple[Tensor, ...]) -> Tensor:
        """Take a step on the inputs of :func:`objective`."""
        value = objective(self.network, self.loss, *inputs)
        self.descend(value)
        self.optimizer.zero_grad(set_to_none=True)
        return value.detach()

    def descend(self, value: Tensor) -> None:
        """Move the weights along the gradient of a value."""
        self.fabric.backward(value)
        if self.clip_norm:
            # An error about infinite gradients would wait for the device; the loss tells of them at the epoch's end.
            self.fabric.clip_gradients(self.network, self.optimizer, max_norm=self.clip_norm, error_if_nonfinite=False)
        self.optimizer.step()


def step_generator(device: torch.device, *numbers: int) -> Generator:
    """Return a generator that depends on these numbers alone: seed, epoch, step, rank."""
    seed = 0
    for number in numbers:
        seed = (seed * 1_000_003 + number + 1) % 2**63
    return Generator(device).manual_seed(seed)


def step_inputs(loss: SegmentationLoss, batch: Batch, generator: Generator) -> tuple[Tensor, ...]:
    """Return all that differs from step to step: images, labels, and the random numbers of methods that draw."""
    drawn = draw_views(batch.images, generator) if isinstance(loss, BWCRLoss) else ()
    return batch.images, batch.labels, *drawn


def objective(network: nn.Module, loss: SegmentationLoss, images: Tensor, labels: Tensor, *drawn: Tensor) -> Tensor:
    """Return what a step makes smaller: a function of its inputs that a CUDA graph can record."""
    if isinstance(loss, BWCRLoss):
        return _two_views(network, loss, images, labels, *drawn)
    return _fitted(loss, network(images), labels)


def _fitted(loss: SegmentationLoss, outputs: Tensor | list[Tensor], labels: Tensor) -> Tensor:
    """Return the loss of what a network says, at one resolution or at several."""
    value: Tensor = (DeepSupervision(loss) if isinstance(outputs, list) else loss)(outputs, labels)
    return value


def _two_views(
    network: nn.Module, loss: BWCRLoss, images: Tensor, labels: Tensor, numbers: Tensor, noise: Tensor
) -> Tensor:
    """Fit the first view to its labels; let both agree wherever both see the image."""
    (first, shown), (second, other_shown) = (make_view(images, *drawn) for drawn in zip(numbers, noise, strict=True))
    outputs = network(torch.cat([shown, other_shown]))
    logits, other = (outputs[0] if isinstance(outputs, list) else outputs).chunk(2)
    (aligned, seen), (other_aligned, other_seen) = first.invert(logits), second.invert(other)
    own = [output.chunk(2)[0] for output in outputs] if isinstance(outputs, list) else logits
    fitted = _fitted(loss, own, first.apply_labels(labels))
    return fitted + loss.consistency(aligned, other_aligned, labels, seen & other_seen)
