"""The folder of a training as those see it who use its model; :mod:`crac.training.run` writes it."""

import contextlib
from pathlib import Path

from crac.data import Split
from crac.errors import InputError, require
from crac.models.card import ModelCard
from crac.models.checkpoint import Checkpoint, DamagedError


class Run:
    """A run on disk.

    Args:
        path: Its folder.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.last = self.path / "last.safetensors"
        self.previous = self.path / "previous.safetensors"
        self.best = self.path / "best.safetensors"

    def check(self) -> None:
        """Refuse a folder in which no training was started."""
        if not (self.path / "config.yaml").is_file():
            raise InputError(f"{self.path} is not a run: it has no config.yaml (see crac train)")

    def data(self) -> Path:
        """The store the run was trained on."""
        path, yaml = self.path / "config.yaml", require("yaml")
        try:
            return Path(yaml.safe_load(path.read_text(encoding="utf-8"))["data"])
        except (OSError, ValueError, RecursionError, yaml.YAMLError, LookupError, TypeError) as error:
            raise InputError(f"{path} does not name the run's data: {' '.join(str(error).split())}") from error

    def split(self) -> Split:
        """Which cases train, validate and test."""
        return Split.load(self.path / "split.json")

    def card(self) -> ModelCard | None:
        """What the network of the run is, as its checkpoints say; None before there is one."""
        for path in (self.last, self.previous, self.best):
            with contextlib.suppress(DamagedError):
                if path.exists():
                    return ModelCard.read(Checkpoint.read_info(path), path)
        return None
