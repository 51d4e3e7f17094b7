"""The parts of a benchmark: a cell is one number of every table, a job the training behind one or more cells."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crac.training import TrainConfig

__all__ = ["Cell", "Folder", "Job"]

NOT_THE_RESULT = ("data", "accelerator", "devices", "nodes", "cache", "cuda_graph", "mlflow", "pictures", "save_every")
"""Settings that say where and how a training runs, not what comes out of it."""


@dataclass(frozen=True)
class Cell:
    """One method, on one data set, with one backbone and one seed.

    Args:
        dataset: Name of the data set.
        backbone: Name of the network.
        method: Name of the row.
        seed: Of the training.
        label: The method for people.
        tempered: Whether the network's temperature is fitted on the validation set.
        sweep: The keyword that was swept over, and its value here.
    """

    dataset: str
    backbone: str
    method: str
    seed: int
    label: str
    tempered: bool = False
    sweep: dict[str, float] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Unique in a benchmark, and a file name."""
        return f"{self.dataset}.{self.backbone}.{self.method}.{self.seed}"


@dataclass(frozen=True)
class Job:
    """One training, and the cells that are measured on its network.

    Args:
        suite: Name of the suite.
        dataset_label: The data set for people.
        config: Settings of the training.
        cells: The first is the network as trained.
    """

    suite: str
    dataset_label: str
    config: TrainConfig
    cells: tuple[Cell, ...]

    @property
    def name(self) -> str:
        """Of the training: its first cell's."""
        return self.cells[0].name

    @property
    def settings(self) -> dict[str, Any]:
        """What decides the result, as plain data."""
        return {
            name: value for name, value in self.config.model_dump(mode="json").items() if name not in NOT_THE_RESULT
        }


@dataclass(frozen=True)
class Folder:
    """Where a benchmark lives.

    OUT/runs/CELL/            folder of the training
    OUT/runs/CELL.log         what it printed
    OUT/results/CELL.json     everything that tables and figures are made of
    OUT/maps/CELL.npz         slices of the best and of the worst volume, for the picture of maps
    OUT/broken/CELL.txt       why a training failed
    OUT/data/NAME             stores of made-up data

    Args:
        path: The folder.
    """

    path: Path

    def run(self, job: Job) -> Path:
        """Folder of a training."""
        return self.path / "runs" / job.name

    def log(self, job: Job) -> Path:
        """What a training printed."""
        return self.path / "runs" / f"{job.name}.log"

    def result(self, cell: Cell) -> Path:
        """The numbers of a cell."""
        return self.results / f"{cell.name}.json"

    def maps(self, cell: Cell) -> Path:
        """The slices of a cell."""
        return self.path / "maps" / f"{cell.name}.npz"

    def broken(self, job: Job) -> Path:
        """Why a training failed."""
        return self.path / "broken" / f"{job.name}.txt"

    def data(self, name: str) -> Path:
        """Store of made-up data."""
        return self.path / "data" / name

    @property
    def results(self) -> Path:
        """All the numbers."""
        return self.path / "results"
