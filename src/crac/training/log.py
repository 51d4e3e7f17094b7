"""Where the numbers of a run go: the terminal, TensorBoard and, if asked for, MLflow."""

from __future__ import annotations

import contextlib
import importlib
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from crac.errors import require
from crac.training.config import TrainConfig

__all__ = ["Log", "describe_epoch"]


class Sink(Protocol):
    """Something that keeps the rows of a training."""

    def row(self, epoch: int, row: dict[str, float]) -> None:
        """Take in one epoch."""

    def close(self) -> None:
        """Write out what is left."""


class TensorBoard:
    """Event files in ``RUN/tensorboard``; epochs from ``start`` on replace those of an interrupted run."""

    def __init__(self, folder: Path, start: int) -> None:
        require("tensorboard")
        writer = importlib.import_module("torch.utils.tensorboard").SummaryWriter
        self._writer = writer(str(folder), purge_step=start + 1)

    def row(self, epoch: int, row: dict[str, float]) -> None:
        """Write one epoch."""
        for name, value in row.items():
            group, _, _ = name.partition("_")
            self._writer.add_scalar(f"{group}/{name}", value, epoch)
        self._writer.flush()

    def close(self) -> None:
        """Close the file."""
        self._writer.close()


class MLflow:
    """A run on the tracking server that MLflow's own environment variables name."""

    def __init__(self, folder: Path, config: TrainConfig) -> None:
        self._mlflow = require("mlflow")
        self._mlflow.start_run(run_name=folder.name)
        self._mlflow.log_params(config.model_dump(mode="json"))

    def row(self, epoch: int, row: dict[str, float]) -> None:
        """Send one epoch."""
        self._mlflow.log_metrics(row, step=epoch)

    def close(self) -> None:
        """End the run."""
        self._mlflow.end_run()


class Log:
    """A training as people watch it: a live bar on a terminal, one line an epoch elsewhere.

    Args:
        folder: Of the run.
        config: Of the run.
        start: Epochs already done.
        steps: Steps of one epoch.
        active: False on all processes but one, where nothing is shown or kept.
    """

    def __init__(self, folder: Path, config: TrainConfig, start: int, steps: int, active: bool) -> None:
        self._epochs = config.epochs
        self._steps = steps
        self._start = start
        self._sinks: list[Sink] = []
        self._live: Any = None
        self._active = active
        if active:
            if config.pictures:
                self._sinks.append(TensorBoard(folder / "tensorboard", start))
            if config.mlflow:
                self._sinks.append(MLflow(folder, config))

    def __enter__(self) -> Self:
        if self._active:
            progress = require("rich.progress")
            self._live = progress.Progress(
                progress.TextColumn("{task.description}"),
                progress.BarColumn(),
                progress.MofNCompleteColumn(),
                progress.TimeElapsedColumn(),
                progress.TimeRemainingColumn(),
                disable=not require("rich.console").Console().is_terminal,
            )
            self._live.start()
            self._whole = self._live.add_task("epochs", total=self._epochs, completed=self._start)
            self._part = self._live.add_task("steps", total=self._steps)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()
        for sink in self._sinks:
            with contextlib.suppress(Exception):  # never hide what went wrong before
                sink.close()

    def step(self, number: int) -> None:
        """Show that a step of the epoch is done."""
        if self._live is not None:
            self._live.update(self._part, completed=number)

    def epoch(self, row: dict[str, float]) -> None:
        """Show and keep a finished epoch."""
        if not self._active:
            return
        number = int(row["epoch"])
        for sink in self._sinks:
            sink.row(number, row)
        line = describe_epoch(number, self._epochs, row)
        if self._live.disable:
            print(line, flush=True)
            return
        self._live.console.print(line, highlight=False)
        self._live.update(self._whole, completed=number)


def describe_epoch(number: int, epochs: int, row: dict[str, float]) -> str:
    """One line: the epoch, its time, its losses and scores."""
    return (
        f"epoch {number:>{len(str(epochs))}}/{epochs}  {row['seconds']:6.1f} s  "
        f"loss {row['train_loss']:.4f} / {row['validation_loss']:.4f}  Dice {row['dice']:.4f}  "
        f"ECE {row['ece']:.4f} (inner {row['ece_inner']:.4f}, outer {row['ece_outer']:.4f})"
    )
