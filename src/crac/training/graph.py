"""The inner step as one CUDA graph: recorded once, then replayed without the CPU's help."""

from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from crac.data import Batch
from crac.training.step import InnerStep, objective, step_inputs

WARM_UP = 11
"""Steps taken before recording, in which kernels are chosen and compiled and the optimizer makes its state."""


@dataclass
class GraphedStep(InnerStep):
    """Takes the place of :class:`~crac.training.step.InnerStep` on one GPU.

    The precision must not need loss scaling, which waits for the device, and the optimizer's learning rate must be a
    tensor there. The first steps, and batches of another size than theirs, are taken as usual: they are steps of the
    training too.
    """

    def __post_init__(self) -> None:
        self.stream = torch.cuda.Stream(self.fabric.device)  # type: ignore[no-untyped-call]
        self.graph: torch.cuda.CUDAGraph | None = None
        self.steps = 0
        self.inputs: tuple[Tensor, ...] = ()
        self.value = torch.empty(0)

    def __call__(self, batch: Batch, generator: Generator) -> Tensor:
        """Take a step, recorded where possible."""
        inputs = step_inputs(self.loss, batch, generator)
        if self.graph is None and self.steps < WARM_UP:
            self.steps += 1
            self.inputs = tuple(torch.empty_like(one) for one in inputs)
            return self._beside(inputs)
        if batch.images.shape != self.inputs[0].shape:
            return self.update(inputs)
        for recorded, one in zip(self.inputs, inputs, strict=True):
            recorded.copy_(one)
        if self.graph is None:
            self._record()
        assert self.graph is not None
        self.graph.replay()
        return self.value.clone()

    def update(self, inputs: tuple[Tensor, ...]) -> Tensor:
        """Take a step that is not recorded."""
        # The recorded gradients live in the graph's memory; a plain step must not add to them.
        self.optimizer.zero_grad(set_to_none=True)
        return super().update(inputs)

    def _beside(self, inputs: tuple[Tensor, ...]) -> Tensor:
        """Take a plain step on another stream, as CUDA asks before recording."""
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            value = self.update(inputs)
        torch.cuda.current_stream().wait_stream(self.stream)
        return value

    def _record(self) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, stream=self.stream):
            value = objective(self.network, self.loss, *self.inputs)
            self.descend(value)
            self.value = value.detach()
