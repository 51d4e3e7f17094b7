"""The inner step as one CUDA graph: recorded once, then replayed without the CPU's help."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Generator, Tensor, nn

from crac.data import Batch
from crac.losses import ConsistencyLoss, SegmentationLoss
from crac.training.step import inner_step

if TYPE_CHECKING:
    from lightning.fabric import Fabric

__all__ = ["GraphedStep"]

WARM_UP = 11
"""Steps taken before recording, in which kernels are chosen and compiled and the optimizer makes its state."""


class GraphedStep:
    """Takes the place of :func:`~crac.training.step.inner_step` on one GPU.

    The first steps, and batches of another size than theirs, are taken as usual: they are steps of the training too.

    Args:
        fabric: As for the plain step; its precision must not need loss scaling, which waits for the device.
        network: As set up by Fabric.
        loss: Any method; one that draws random views is never recorded.
        optimizer: As set up by Fabric, its learning rate a tensor on the device.
    """

    def __init__(self, fabric: Fabric, network: nn.Module, loss: SegmentationLoss, optimizer: Any) -> None:
        self.fabric, self.network, self.loss, self.optimizer = fabric, network, loss, optimizer
        self.stream = torch.cuda.Stream(fabric.device)  # type: ignore[no-untyped-call]
        self.graph: torch.cuda.CUDAGraph | None = None
        self.steps = 0
        self.images = self.labels = self.value = torch.empty(0)

    def __call__(self, batch: Batch, generator: Generator) -> Tensor:
        """One update of the weights; returns the loss without waiting for the device."""
        if isinstance(self.loss, ConsistencyLoss):
            return self._plain(batch, generator)
        if self.graph is None and self.steps < WARM_UP:
            self.steps += 1
            self.images, self.labels = torch.empty_like(batch.images), torch.empty_like(batch.labels)
            return self._beside(batch, generator)
        if batch.images.shape != self.images.shape:
            return self._plain(batch, generator)
        self.images.copy_(batch.images)
        self.labels.copy_(batch.labels)
        if self.graph is None:
            self._record(generator)
        assert self.graph is not None
        self.graph.replay()
        return self.value.clone()

    def _plain(self, batch: Batch, generator: Generator) -> Tensor:
        # The recorded gradients live in the graph's memory; a plain step must not add to them.
        self.optimizer.zero_grad(set_to_none=True)
        return inner_step(self.fabric, self.network, self.loss, self.optimizer, batch, generator)

    def _beside(self, batch: Batch, generator: Generator) -> Tensor:
        """A plain step on another stream, as CUDA asks before recording."""
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            value = self._plain(batch, generator)
        torch.cuda.current_stream().wait_stream(self.stream)
        return value

    def _record(self, generator: Generator) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, stream=self.stream):
            self.value = self.loss(self.network(self.images), self.labels)
            self.fabric.backward(self.value)
            self.optimizer.step()
