"""Start a training, or go on with one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from crac.data import Split, Store
from crac.data.notes import training_notes
from crac.errors import InputError, out_of_memory, require
from crac.files import remove_folder
from crac.losses.signed import SignedMultipliers
from crac.progress import note
from crac.training.config import TrainConfig
from crac.training.engine import numerics, on_first, start_fabric
from crac.training.fit import DivergedError, fit
from crac.training.initial import initial_weights
from crac.training.interrupt import Interrupt
from crac.training.log import Log
from crac.training.plan import planned
from crac.training.plots import plot_multipliers
from crac.training.run import RunFolder, resume_command
from crac.training.task import model_card, prepare_task, training_loss

if TYPE_CHECKING:
    from lightning.fabric import Fabric


RISING = "the CRaC loss rises by design, since its multipliers grow; Dice and ECE tell how the training goes"


class TrainingError(RuntimeError):
    """A training that cannot go on, through no fault of its input."""


@dataclass(frozen=True)
class Result:
    """How a training ended.

    Args:
        run: Folder of the run.
        finished: Whether the last epoch was reached; if not, :func:`resume` goes on.
        history: One row per epoch: losses, scores, multipliers.
        plan: Why patch and batch are what they are, where the settings left them open.
    """

    run: Path
    finished: bool
    history: list[dict[str, float]]
    plan: str = ""


def train(config: TrainConfig, out: str | Path, split: Split | None = None) -> Result:
    """Train a network from scratch.

    Args:
        config: Settings.
        out: Folder of the run; must not exist or be empty.
        split: Who trains, validates and tests; by default what the settings say.

    Raises:
        InputError: Settings, store or folder do not fit, or memory does not suffice.
        TrainingError: The loss became NaN or infinite.
    """
    config = config.absolute()
    store, split = _data(config, split)
    config, plan = planned(config, store, len(split.train))
    check_settings(config, store, split)
    fabric = start_fabric(config)
    config = fabric.broadcast(config)  # another process may have found other memory free
    on_first(fabric, lambda: RunFolder.create(out, config, split))
    for text in [f"planned {plan}"] * bool(plan) + training_notes(store, split) if fabric.is_global_zero else ():
        note(text)
    return replace(_go_on(fabric, RunFolder(out), config, store, split, fresh=True), plan=plan)


def check_settings(config: TrainConfig, store: Store, split: Split) -> None:
    """Refuse what only the store or this machine can prove wrong, before anything is written."""
    learns = training_loss(config, store).multipliers is not None
    if learns and not any(sum(store.cases[name].prepared_voxels) for name in split.validation):
        raise InputError(
            f"method {config.method} learns from the validation part of the split, and all voxels there are ignored"
        )
    card = model_card(config, store)
    if config.init is not None:
        initial_weights(config.init, card)
    for logger in ["tensorboard"] * config.pictures + ["mlflow"] * config.mlflow:
        require(logger)


def resume(run: str | Path, epochs: int | None = None) -> Result:
    """Go on with a run, given its folder, that was stopped, killed or interrupted, from its last checkpoint.

    Args:
        run: Folder of the run.
        epochs: Train up to this many instead of what the run was begun with; a finished run is extended by it.

    Raises:
        InputError: The folder is no run or is damaged, or its data set has changed.
        TrainingError: The loss became NaN or infinite.
    """
    folder = RunFolder.open(run)
    config, split = folder.config(), folder.split()
    store = Store.open(config.data)
    if card := folder.card():
        card.check_store(store)
    split.check(store.cases, str(folder.path / "split.json"))
    extended = epochs is not None and epochs != config.epochs
    if extended:
        config = TrainConfig.make({**config.model_dump(), "epochs": epochs})
    fabric = start_fabric(config)
    if extended:
        on_first(fabric, lambda: folder.extend(config))
    return _go_on(fabric, folder, config, store, split)


def _data(config: TrainConfig, split: Split | None) -> tuple[Store, Split]:
    store = Store.open(config.data)
    if split is None:
        split = Split.load(config.split, store.cases) if config.split else store.split(config.split_seed)
    for part in ("train", "validation"):
        if not getattr(split, part):
            raise InputError(f"{config.split or config.data}: the split's {part} part is empty; it needs a case")
    return store, split


def _go_on(
    fabric: Fabric, run: RunFolder, config: TrainConfig, store: Store, split: Split, fresh: bool = False
) -> Result:
    with contextlib.ExitStack() as stack:
        stack.enter_context(numerics(config))
        on_first(fabric, lambda: stack.enter_context(run.lock()))
        stack.enter_context(_leaving_nothing(run, fresh and fabric.is_global_zero))
        stop = stack.enter_context(Interrupt())
        stack.enter_context(_explained(config, run))
        task, state = prepare_task(fabric, config, store, split, run)
        on_first(fabric, lambda: run.record_environment(task.device))
        if state.epoch >= config.epochs and fabric.is_global_zero:
            more = f"{resume_command(run.path)} --epochs {2 * config.epochs}"
            note(f"{run.path} is finished: all {config.epochs} epochs are done; to go further: {more}")
        multipliers = task.loss.multipliers
        caption = "" if multipliers is None or isinstance(multipliers, SignedMultipliers) else RISING
        if caption and fabric.is_global_zero:
            note(caption)
        with Log(run.path, config, state.history, len(task.batches), caption, active=fabric.is_global_zero) as log:
            finished = fit(config, task, state, log, stop)
        if fabric.is_global_zero and config.pictures and state.history and task.multipliers():
            plot_multipliers(state.history, run.path / "multipliers.png", f"Multipliers of {run.path.name}")
        return Result(run.path, finished, state.history)


@contextlib.contextmanager
def _leaving_nothing(run: RunFolder, fresh: bool) -> Iterator[None]:
    """Remove a new run that bad input ends before anything was learned, so that its name can be used again."""
    try:
        yield
    except InputError:
        if fresh and not run.last.exists() and not run.best.exists():
            remove_folder(run.path)
        raise


@contextlib.contextmanager
def _explained(config: TrainConfig, run: RunFolder) -> Iterator[None]:
    """Say what a NaN or a lack of memory means for the user."""
    try:
        yield
    except DivergedError as error:
        good = f"the last good checkpoint is {run.last}" if run.last.exists() else "no checkpoint was saved before"
        raise TrainingError(f"{error}; {good}") from error
    except (MemoryError, RuntimeError) as error:
        if not out_of_memory(error):
            raise
        raise InputError(f"out of memory: {_advice(config)}") from error


def _advice(config: TrainConfig) -> str:
    """Say which settings need less memory."""
    lower = [f"batch_size (now {config.batch_size})", f"width (now {config.width})"]
    if config.patch_size:
        lower.insert(1, f"patch_size (now {' '.join(map(str, config.patch_size))})")
    other = ["precision bf16"] if config.precision in ("fp32", "tf32") else []
    other += {"device": ["cache memory"], "memory": ["cache mmap"], "mmap": []}[config.cache]
    return f"lower {', '.join(lower)}" + (f", or choose {', '.join(other)}" if other else "")
