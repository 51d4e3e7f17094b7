"""All that changes during a training, and its way into a checkpoint and back."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from crac.errors import InputError
from crac.losses import SegmentationLoss
from crac.models.checkpoint import Checkpoint, load_tensors, prefixed, state_of


@dataclass
class State:
    """Where a training stands. Random numbers are no part of it: they all follow from seed, epoch and step.

    Args:
        network: The network without any wrapper, so that its names are the same however it is run.
        loss: The loss, with its multipliers.
        optimizer: The network's optimizer.
        precision: Fabric's precision plugin, which holds the scale of fp16 gradients.
        epoch: Epochs finished.
        step: Steps finished in the epoch under way.
        losses: Losses of those steps.
        names: Cases of those steps, as far as this process took them.
        history: One row per finished epoch.
    """

    network: nn.Module
    loss: SegmentationLoss
    optimizer: Optimizer
    precision: Any
    epoch: int = 0
    step: int = 0
    losses: list[Tensor] = field(default_factory=list)
    names: list[list[str]] = field(default_factory=list)
    history: list[dict[str, float]] = field(default_factory=list)

    def finish_step(self, loss: Tensor, names: list[str]) -> None:
        """Count a step and keep its loss and its cases."""
        self.step += 1
        self.losses.append(loss)
        self.names.append(names)

    def finish_epoch(self, row: dict[str, float]) -> None:
        """Count the epoch under way and keep its row."""
        self.history.append(row)
        self.epoch, self.step, self.losses, self.names = self.epoch + 1, 0, [], []

    def result(self) -> dict[str, Tensor]:
        """Return the tensors that are the result of a training: network and multipliers."""
        return prefixed("network", state_of(self.network)) | prefixed("loss", state_of(self.loss))

    def tensors(self) -> dict[str, Tensor]:
        """Return every tensor that is needed to go on."""
        moments = self.optimizer.state_dict()["state"]
        named = {f"{index}.{name}": value for index, values in moments.items() for name, value in values.items()}
        tensors = self.result() | prefixed("optimizer", named)
        if self.losses:
            tensors["losses"] = torch.stack(self.losses)
        return tensors

    def info(self) -> dict[str, Any]:
        """Return what else is needed to go on, as plain data."""
        counts = {"epoch": self.epoch, "step": self.step}
        return {**counts, "history": self.history, "precision": self.precision.state_dict()}

    def restore(self, checkpoint: Checkpoint, path: Path) -> None:
        """Go back to a checkpoint."""
        load_tensors(self.network, checkpoint.part("network"), path)
        load_tensors(self.loss, checkpoint.part("loss"), path)
        info = checkpoint.info
        try:
            self._restore_optimizer(checkpoint.part("optimizer"))
            self.precision.load_state_dict(info["precision"])
            self.epoch, self.step, self.history = int(info["epoch"]), int(info["step"]), list(info["history"])
            device = next(self.network.parameters()).device
            self.losses = list(checkpoint.tensors["losses"].to(device)) if self.step else []
        except (LookupError, ValueError, TypeError, RuntimeError) as error:
            raise InputError(f"{path} cannot be resumed from: {error!r}") from error

    def _restore_optimizer(self, tensors: dict[str, Tensor]) -> None:
        parameters = [parameter for group in self.optimizer.param_groups for parameter in group["params"]]
        moments: dict[int, dict[str, Tensor]] = {}
        for key, value in tensors.items():
            index, _, name = key.partition(".")
            like = parameters[int(index)]
            if value.ndim and value.shape != like.shape:
                raise ValueError(f"optimizer.{key} has shape {tuple(value.shape)}, not {tuple(like.shape)}")
            # In the memory layout of its parameter, as the optimizer itself would have made it.
            moments.setdefault(int(index), {})[name] = torch.empty_like(like).copy_(value) if value.ndim else value
        self.optimizer.load_state_dict({**self.optimizer.state_dict(), "state": moments})
