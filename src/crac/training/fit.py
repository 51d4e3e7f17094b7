"""The paper's algorithm: for each epoch, inner steps on the weights, then an outer step on the multipliers."""

import itertools
import time

import torch

from crac.errors import InputError
from crac.training.config import TrainConfig
from crac.training.engine import peak_memory
from crac.training.interrupt import Interrupt
from crac.training.log import Log
from crac.training.state import State
from crac.training.task import Task


class DivergedError(RuntimeError):
    """The loss is no longer a finite number."""


def fit(config: TrainConfig, task: Task, state: State, log: Log, stop: Interrupt) -> bool:
    """Train from where the state stands to the last epoch.

    Returns whether the last epoch was reached; if not, the run was asked to stop, between two steps, and is saved.
    """
    start = time.perf_counter()
    while state.epoch < config.epochs:
        inner_iteration(config, task, state, log, stop)
        if stop.requested and not task.distributed:
            task.save(state, epoch_finished=False)
            return False
        loss = epoch_loss(task, state)
        pace = sum(map(len, state.names)) / (time.perf_counter() - start)
        scores = outer_iteration(task, state)
        row = {"epoch": state.epoch + 1, "learning_rate": config.rate(state.epoch), "train_loss": loss, **scores}
        before, start = start, time.perf_counter()  # writing the checkpoint counts to the next epoch
        state.finish_epoch({**row, **task.multipliers(), "seconds": start - before})
        task.save(state, epoch_finished=True)
        log.epoch(state.history[-1], pace * task.step.fabric.world_size, peak_memory(task.device))
        if task.any_rank(stop.requested):
            task.save(state, epoch_finished=False)
            break
    return state.epoch == config.epochs


def inner_iteration(config: TrainConfig, task: Task, state: State, log: Log, stop: Interrupt) -> None:
    """One pass over the training set with the multipliers fixed; takes up an epoch that was interrupted."""
    task.batches.set_epoch(state.epoch)
    steps = len(task.batches)
    for batch in itertools.islice(task.batches, state.step, None):
        task.set_learning_rate(config.rate(state.epoch + state.step / steps))
        value = task.take_step(batch, state.epoch, state.step)
        state.finish_step(value, batch.names)
        if task.device.type == "cpu" and not task.distributed and not value.isfinite():
            raise diverged(state, state.step)
        log.step(state.step)
        if stop.requested and not task.distributed:
            return


def outer_iteration(task: Task, state: State) -> dict[str, float]:
    """The outer step on the multipliers, which learn from the validation set; returns the scores there."""
    try:
        scores = task.validate()
        task.loss.update_multipliers()
    except InputError as error:  # the data was checked when it was prepared, so it is the network that fails
        raise DivergedError(
            f"the network no longer answers with numbers after epoch {state.epoch + 1}, step {state.step}; "
            f"cases of the batch: {', '.join(dict.fromkeys(state.names[-1])) if state.names else 'unknown'}"
        ) from error
    return scores


def epoch_loss(task: Task, state: State) -> float:
    """Return the mean loss of the epoch; this is where a GPU is first waited for, and NaN found."""
    losses = torch.stack(state.losses)
    broken = (~losses.isfinite()).nonzero()
    if task.any_rank(bool(len(broken))):
        raise diverged(state, int(broken[0]) + 1 if len(broken) else None)
    return task.mean(losses.double().mean())


def diverged(state: State, step: int | None) -> DivergedError:
    """Return the error that says when and on which cases the loss was lost."""
    if step is None:
        return DivergedError(f"the loss became NaN or infinite in epoch {state.epoch + 1} on another process")
    skipped = len(state.losses) - len(state.names)  # steps before the run was resumed
    cases = ", ".join(dict.fromkeys(state.names[step - 1 - skipped])) if step > skipped else "unknown"
    value = state.losses[step - 1].item()
    return DivergedError(f"the loss is {value} in epoch {state.epoch + 1}, step {step}; cases of the batch: {cases}")
