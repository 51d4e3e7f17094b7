"""The folder of a run: what was asked for, where it stands, what came out.

RUN/config.yaml           every setting
RUN/split.json            which cases train, validate and test
RUN/environment.json      versions and machine, one entry per start
RUN/metrics.csv           one row per epoch
RUN/last.safetensors      to go on from; last.json is a copy to read
RUN/previous.safetensors  the one before, in case the last is damaged
RUN/best.safetensors      highest validation Dice; best.json likewise
RUN/curves.png            losses, Dice and ECE over the epochs
RUN/multipliers.png       lambda and rho over the epochs, for methods that have them
RUN/tensorboard/          the same numbers for TensorBoard
"""

import contextlib
import importlib.metadata
import math
import os
import platform
import shlex
import shutil
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import filelock
import torch

from crac._version import __version__
from crac.data import Split
from crac.errors import InputError
from crac.files import PARTIAL, read_json, remove_folder, replacing, write_json, write_rows, write_text, writing
from crac.models.checkpoint import Checkpoint, DamagedError
from crac.models.run import Run
from crac.progress import note
from crac.training.config import TrainConfig, read_yaml
from crac.training.state import State

LOCK = ".lock"
PACKAGES = ("torch", "numpy", "scipy", "lightning", "monai", "nibabel", "pydantic", "safetensors", "triton")


class RunFolder(Run):
    """A run on disk, to be written; ``path`` is its folder."""

    _last_is_sound = True

    @classmethod
    def create(cls, path: str | Path, config: TrainConfig, split: Split) -> Self:
        """Make the folder with its split and, last, its settings, which make it a run."""
        run = cls(path)
        if (run.path / "config.yaml").exists():
            raise InputError(f"{run.path} already holds a run: continue it with {resume_command(run.path)}")
        names = {entry.name for entry in run.path.iterdir()} if run.path.is_dir() else set()
        if LOCK in names:  # left by a process that was killed here
            names = {name for name in names - {LOCK, "split.json"} if not name.startswith(PARTIAL)}
        if names or (run.path.exists() and not run.path.is_dir()):
            raise InputError(f"{run.path} is not an empty folder: choose another --out")
        with writing(run.path):
            run.path.mkdir(parents=True, exist_ok=True)
        with run.lock():
            if (run.path / "config.yaml").exists():
                raise InputError(f"{run.path} already holds a run: another process has begun it")
            try:
                split.save(run.path / "split.json")
                write_text(run.path / "config.yaml", config.dump())
            except InputError:
                remove_folder(run.path)
                raise
        return run

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """Open the folder of a run that was made before."""
        run = cls(path)
        run.check()
        return run

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Keep every other process out; the lock dies with the process that holds it."""
        try:
            held = filelock.FileLock(self.path / LOCK).acquire(timeout=0)
        except filelock.Timeout:
            raise InputError(f"{self.path} is in use: another process is training it") from None
        except OSError as error:
            raise InputError(f"{self.path} cannot be written: {error.strerror or error}") from error
        with held:
            for left in self.path.glob(f"{PARTIAL}*"):  # by a process that was killed while it wrote
                left.unlink()
            yield

    def config(self) -> TrainConfig:
        """The settings of the run."""
        path = self.path / "config.yaml"
        return TrainConfig.written(read_yaml(path), str(path))

    def extend(self, config: TrainConfig) -> None:
        """Take over another number of epochs; the run must not have gone further already."""
        done = self.epochs_done()
        if config.epochs < done:
            raise InputError(f"epochs must be at least {done}, which {self.path} has done already; got {config.epochs}")
        with self.lock():
            write_text(self.path / "config.yaml", config.dump())

    def epochs_done(self) -> int:
        """How many epochs the checkpoint to go on from has seen; 0 without a sound one."""
        for path in (self.last, self.previous):
            with contextlib.suppress(DamagedError):
                if path.exists():
                    return int(Checkpoint.read_info(path)["epoch"])
        return 0

    def record_environment(self, device: torch.device) -> None:
        """Add this start to ``environment.json``."""
        path = self.path / "environment.json"
        starts = read_json(path) if path.is_file() else []
        if not isinstance(starts, list):
            raise InputError(f"{path} is damaged: remove it and resume")
        write_json(path, [*starts, _environment(device)])

    def save_last(self, state: State, about: dict[str, Any]) -> None:
        """Save everything that is needed to go on; the checkpoint before is kept."""
        if self.last.exists() and self._last_is_sound:
            with replacing(self.previous) as partial:
                try:
                    os.link(self.last, partial)
                except OSError:  # a disk without links
                    shutil.copyfile(self.last, partial)
        Checkpoint(state.tensors(), {**about, **state.info()}).save(self.last)
        self._last_is_sound = True

    def load_last(self) -> Checkpoint | None:
        """The checkpoint to go on from, if there is one; where the last is damaged the one before it, with a note."""
        if not self.last.exists():
            return None
        try:
            return Checkpoint.load(self.last)
        except DamagedError as error:
            if not self.previous.exists():
                raise
            before = Checkpoint.load(self.previous)
            self._last_is_sound = False
            note(f"{error}; going on from the checkpoint before, {before.info.get('epoch')} epochs")
            return before

    def save_epoch(self, state: State, about: dict[str, Any], due: bool = True) -> None:
        """Save a finished epoch: ``best`` if it is or none is sound, then ``last`` if it is due, then the table."""
        # First `best`: if the process dies in between, the epoch is repeated and `best` found to be right already.
        row = state.history[-1]
        if row["dice"] > self._best_dice():
            Checkpoint(state.result(), {**about, "epoch": state.epoch, **row}).save(self.best)
        if due:
            self.save_last(state, about)
        write_rows(self.path / "metrics.csv", state.history)

    def _best_dice(self) -> float:
        try:
            return float(Checkpoint.read_info(self.best)["dice"]) if self.best.exists() else -math.inf
        except DamagedError as error:
            note(f"{error}; the best from here on takes its place")
            return -math.inf


def resume_command(path: Path) -> str:
    """What to type to go on with a run."""
    return f"crac train --resume {shlex.quote(str(path))}"


def _environment(device: torch.device) -> dict[str, Any]:
    versions = {}
    for package in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    return {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": sys.argv,
        "crac": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "machine": platform.node(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else str(device),
        "threads": torch.get_num_threads(),
        "packages": versions,
    }
