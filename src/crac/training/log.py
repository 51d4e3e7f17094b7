"""Where the numbers of a run go: the terminal, TensorBoard and, if asked for, MLflow."""

import contextlib
import importlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from crac.errors import require
from crac.progress import duration
from crac.training.config import TrainConfig
from crac.training.plots import plot_curves

BETWEEN_PICTURES = 60.0
"""Seconds: a picture takes longer than some epochs."""

Sink = Callable[[int, dict[str, float]], None]
"""Keeps the row of an epoch."""


@contextlib.contextmanager
def tensorboard(folder: Path, start: int) -> Iterator[Sink]:
    """Write event files to ``RUN/tensorboard``; epochs after ``start`` replace those of an interrupted run."""
    require("tensorboard")
    summary_writer = importlib.import_module("torch.utils.tensorboard").SummaryWriter
    with summary_writer(str(folder / "tensorboard"), purge_step=start + 1) as writer:

        def keep(epoch: int, row: dict[str, float]) -> None:
            for name, value in row.items():
                writer.add_scalar(f"{name.partition('_')[0]}/{name}", value, epoch)
            writer.flush()

        yield keep


@contextlib.contextmanager
def mlflow(folder: Path, config: TrainConfig) -> Iterator[Sink]:
    """Send rows to the tracking server that MLflow's own environment variables name."""
    server = require("mlflow")
    server.start_run(run_name=folder.name)
    try:
        server.log_params(config.model_dump(mode="json"))
        yield lambda epoch, row: server.log_metrics(row, step=epoch)
    finally:
        server.end_run()


@contextlib.contextmanager
def curves(folder: Path, history: Sequence[Mapping[str, float]], caption: str) -> Iterator[Sink]:
    """Draw the curves of a run so far, now and then and at the end."""
    drawn = time.monotonic()

    def draw() -> None:
        plot_curves(history, folder / "curves.png", folder.name, caption)

    def keep(epoch: int, row: dict[str, float]) -> None:
        nonlocal drawn
        if time.monotonic() - drawn > BETWEEN_PICTURES:
            draw()
            drawn = time.monotonic()

    try:
        yield keep
    finally:
        if history:
            draw()


class Log:
    """A training as people watch it: a live bar on a terminal, one line an epoch elsewhere.

    Args:
        folder: Folder of the run.
        config: Its settings.
        history: Rows of the epochs that are done; grows as the training does.
        steps: Steps of an epoch.
        caption: What must be known to read the curves.
        active: Only one process is; on the others nothing is shown or kept.
    """

    def __init__(
        self,
        folder: Path,
        config: TrainConfig,
        history: Sequence[Mapping[str, float]],
        steps: int,
        caption: str,
        active: bool,
    ) -> None:
        self._folder, self._config, self._history, self._steps, self._active = folder, config, history, steps, active
        self._start, self._began, self._caption = len(history), time.monotonic(), caption
        self._sinks: list[Sink] = []
        self._live: Any = None
        self._open = contextlib.ExitStack()

    def __enter__(self) -> Self:
        if not self._active:
            return self
        if self._config.pictures:
            self._sinks.append(self._open.enter_context(tensorboard(self._folder, self._start)))
            self._sinks.append(self._open.enter_context(curves(self._folder, self._history, self._caption)))
        if self._config.mlflow:
            self._sinks.append(self._open.enter_context(mlflow(self._folder, self._config)))
        rich = require("rich.progress")
        columns = rich.BarColumn(), rich.MofNCompleteColumn(), rich.TimeElapsedColumn(), rich.TimeRemainingColumn()
        terminal = require("rich.console").Console().is_terminal
        progress = rich.Progress(rich.TextColumn("{task.description}"), *columns, disable=not terminal)
        self._live = self._open.enter_context(progress)
        self._whole = self._live.add_task("epochs", total=self._config.epochs, completed=self._start)
        self._part = self._live.add_task("steps", total=self._steps)
        return self

    def __exit__(self, *error: Any) -> None:
        with contextlib.suppress(Exception):  # never hide what went wrong before
            self._open.__exit__(*error)

    def step(self, number: int) -> None:
        """Show that a step of the epoch is done."""
        if self._live is not None:
            self._live.update(self._part, completed=number)

    def epoch(self, row: dict[str, float], pace: float, memory: float) -> None:
        """Show and keep a finished epoch, its pace in training images a second, and the most GiB used so far."""
        if not self._active:
            return
        number, epochs = int(row["epoch"]), self._config.epochs
        for keep in self._sinks:
            keep(number, row)
        left = (time.monotonic() - self._began) / (number - self._start) * (epochs - number)
        self._say(
            f"epoch {number:>{len(str(epochs))}}/{epochs}  {row['seconds']:6.1f} s  "
            f"loss {row['train_loss']:.4f} / {row['validation_loss']:.4f}  Dice {row['dice']:.4f}  "
            f"ECE {row['ece']:.4f} (inner {row['ece_inner']:.4f}, outer {row['ece_outer']:.4f})  "
            f"{pace:.3g} images/s  {memory:.1f} GiB  {duration(left)} left"
        )
        self._live.update(self._whole, completed=number)

    def _say(self, line: str) -> None:
        if self._live.disable:
            print(line, flush=True)
        else:
            self._live.console.print(line, highlight=False)
