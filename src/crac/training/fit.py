"""The paper's algorithm: for each epoch, inner steps on the weights, then an outer step on the multipliers."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from crac.data import Batches
from crac.training.config import TrainConfig
from crac.training.interrupt import Interrupt
from crac.training.log import Log
from crac.training.plots import region_names
from crac.training.state import State
from crac.training.step import inner_step, step_generator

if TYPE_CHECKING:
    from lightning.fabric import Fabric

__all__ = ["DivergedError", "fit"]


class DivergedError(RuntimeError):
    """The loss is no longer a number."""


def fit(
    fabric: Fabric,
    config: TrainConfig,
    state: State,
    batches: Batches,
    validate: Callable[[], dict[str, float]],
    save: Callable[[State], None],
    log: Log,
    stop: Interrupt,
) -> bool:
    """Train to the last epoch; False if asked to stop before.

    Args:
        fabric: Devices and precision.
        config: Settings.
        state: Where the training stands; network and optimizer as set up by Fabric.
        batches: Of the training set.
        validate: Lets the loss observe the validation set and returns the scores.
        save: Called with the state after every epoch.
        log: Where numbers go.
        stop: Looked at after every step.
    """
    for epoch in range(state.epoch, config.epochs):
        start = time.perf_counter()
        inner_iteration(fabric, config, state, batches, log, stop)
        if stop.requested and fabric.world_size == 1:
            return False
        train_loss = mean_loss(fabric, state)
        scores = validate()
        state.loss.update_multipliers()  # the outer step
        row = {"epoch": epoch + 1, "learning_rate": config.rate(epoch), "seconds": time.perf_counter() - start}
        state.finish_epoch({**row, "train_loss": train_loss, **scores, **multipliers(state, config)})
        save(state)
        log.epoch(state.epoch, state.history[-1])
        if agreed(fabric, stop):
            return state.epoch == config.epochs
    return True
