"""The inner step as one CUDA graph: recorded once, then replayed without the CPU's help."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Generator, Tensor, nn

from crac.data import Batch
from crac.losses import SegmentationLoss
from crac.training.step import objective, step_inputs, update

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
        loss: Any method.
        optimizer: As set up by Fabric, its learning rate a tensor on the device.
    """

    def __init__(self, fabric: Fabric, network: nn.Module, loss: SegmentationLoss, optimizer: Any) -> None:
        self.fabric, self.network, self.loss, self.optimizer = fabric, network, loss, optimizer
        self.stream = torch.cuda.Stream(fabric.device)  # type: ignore[no-untyped-call]
        self.graph: torch.cuda.CUDAGraph | None = None
        self.steps = 0
        self.inputs: tuple[Tensor, ...] = ()
        self.value = torch.empty(0)

    def __call__(self, batch: Batch, generator: Generator) -> Tensor:
        """One update of the weights; returns the loss without waiting for the device."""
        inputs = step_inputs(self.loss, batch, generator)
        if self.graph is None and self.steps < WARM_UP:
            self.steps += 1
            self.inputs = tuple(torch.empty_like(one) for one in inputs)
            return self._beside(inputs)
        if batch.images.shape != self.inputs[0].shape:
            return self._plain(inputs)
        for recorded, one in zip(self.inputs, inputs, strict=True):
            recorded.copy_(one)
        if self.graph is None:
            self._record()
        assert self.graph is not None
        self.graph.replay()
        return self.value.clone()

    def _plain(self, inputs: tuple[Tensor, ...]) -> Tensor:
        # The recorded gradients live in the graph's memory; a plain step must not add to them.
        self.optimizer.zero_grad(set_to_none=True)
        return update(self.fabric, self.network, self.loss, self.optimizer, inputs)

    def _beside(self, inputs: tuple[Tensor, ...]) -> Tensor:
        """A plain step on another stream, as CUDA asks before recording."""
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            value = self._plain(inputs)
        torch.cuda.current_stream().wait_stream(self.stream)
        return value

    def _record(self) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, stream=self.stream):
            value = objective(self.network, self.loss, *self.inputs)
            self.fabric.backward(value)
            self.optimizer.step()
            self.value = value.detach()
