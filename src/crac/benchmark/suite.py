"""What a benchmark compares: data sets × backbones × methods × seeds, read from a YAML file."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from crac.data.recipe import Strict
from crac.errors import InputError, checked, one_of
from crac.losses import METHODS
from crac.networks import BACKBONES
from crac.training.config import TrainConfig, read_yaml

SUITES = Path(__file__).parent / "suites"
FROM_THE_CELL = ("data", "method", "method_options", "backbone", "seed")
"""Settings of a training that the cells of a suite decide."""

NOT_THE_RESULT = ("data", "accelerator", "devices", "nodes", "cache", "cuda_graph", "mlflow", "pictures", "save_every")
"""Settings that say where and how a training runs, not what comes out of it."""


Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$")]
"""Names become file names: letters, digits, ``_`` and ``-``."""


@dataclass(frozen=True)
class Cell:
    """One method, on one data set, with one backbone and one seed.

    Args:
        dataset: Name of the data set.
        backbone: Name of the network.
        method: Name of the method's row in the tables.
        seed: Seed of the training.
        label: How the tables call the method.
        tempered: Whether the network's temperature is fitted on the validation set.
        sweep: The keyword that is varied, with its value in this cell.
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
        """A name that is unique in a benchmark and can be that of a file."""
        return f"{self.dataset}.{self.backbone}.{self.method}.{self.seed}"


@dataclass(frozen=True)
class Job:
    """One training, and the cells that are measured on its network.

    Args:
        suite: Name of the suite.
        dataset_label: How the tables call the data set.
        config: Settings of the training.
        cells: The first is the network as trained, the others are variants that need no training.
    """

    suite: str
    dataset_label: str
    config: TrainConfig
    cells: tuple[Cell, ...]

    @property
    def name(self) -> str:
        """The name of the first cell, which is also that of the training."""
        return self.cells[0].name

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that decide the result, as plain data."""
        settings = self.config.model_dump(mode="json")
        return {name: value for name, value in settings.items() if name not in NOT_THE_RESULT}


class Phantom(Strict):
    """Artificial data that the benchmark makes by itself, with the arguments of :mod:`crac.data.phantom`.

    Args:
        kind: ``cardiac`` (ACDC's layout) or ``abdominal`` (FLARE's).
        spacing: Millimetres along ``(D, H, W)`` that abdominal volumes are resampled to.
        crop: Voxels along ``(D, H, W)`` that are kept of them.
    """

    kind: Literal["cardiac", "abdominal"]
    patients: Annotated[int, Field(ge=3)] = 20
    seed: int = 0
    size: int = 96
    slices: int = 8
    spacing: tuple[float, float, float] | None = None
    crop: tuple[int, int, int] | None = None


class DataSet(Strict):
    """Where the images come from: either a store or a phantom.

    Args:
        store: Prepared store (``crac prepare``).
        phantom: Artificial data to make.
        label: How the tables call the data set.
    """

    store: Path | None = None
    phantom: Phantom | None = None
    label: str | None = None

    @model_validator(mode="after")
    def _one(self) -> DataSet:
        if (self.store is None) == (self.phantom is None):
            raise ValueError("must name either a store or a phantom")
        return self


class Method(Strict):
    """A row of the tables, or a sweep of rows.

    Args:
        method: Loss, one of :data:`crac.METHODS`.
        options: Keywords of the loss.
        label: How the tables call the method.
        sweep: One keyword with the values to try; each becomes a row of its own.
        temperature_of: Instead of a loss: another row, whose networks get a temperature fitted on the validation set.
    """

    method: str | None = None
    options: dict[str, Any] = Field(default_factory=dict)
    label: str | None = None
    sweep: dict[str, Annotated[list[float], Field(min_length=1)]] = Field(default_factory=dict, max_length=1)
    temperature_of: str | None = None

    @model_validator(mode="after")
    def _one(self) -> Method:
        if (self.method is None) == (self.temperature_of is None):
            raise ValueError("must name either a method or temperature_of")
        if self.method is not None and self.method not in METHODS:
            raise one_of("method", self.method, METHODS)
        if self.temperature_of is not None and (self.options or self.sweep):
            raise ValueError("temperature_of takes no options and no sweep")
        return self


class Training(TrainConfig):
    """Settings of :class:`crac.training.TrainConfig` that all cells share."""

    data: Path = Path()
    pictures: bool = False


class Suite(Strict):
    """Everything a benchmark runs.

    Args:
        name: Name of the suite.
        title: What it compares, in one phrase.
        datasets: Data sets by name.
        backbones: Networks, of :data:`crac.networks.BACKBONES`.
        methods: Rows by name, in the order of the tables.
        seeds: Each cell is trained once with every one.
        training: Settings of the trainings that hold for all cells.
    """

    name: Name
    title: str
    datasets: dict[Name, DataSet] = Field(min_length=1)
    backbones: list[str] = Field(min_length=1)
    methods: dict[Name, Method] = Field(min_length=1)
    seeds: list[Annotated[int, Field(ge=0)]] = Field(min_length=1)
    training: Training = Training()

    @field_validator("backbones")
    @classmethod
    def _known(cls, backbones: list[str]) -> list[str]:
        if unknown := [name for name in backbones if name not in BACKBONES]:
            raise one_of("backbones", ", ".join(unknown), BACKBONES)
        return backbones

    @field_validator("methods")
    @classmethod
    def _bases_exist(cls, methods: dict[str, Method]) -> dict[str, Method]:
        problems = []
        for name, base in [(n, m.temperature_of) for n, m in methods.items() if m.temperature_of is not None]:
            if base not in methods or methods[base].method is None:
                problems.append(f"temperature_of of {name!r} must name a trained method of the suite; got {base!r}")
            elif methods[base].sweep:
                problems.append(f"temperature_of of {name!r} must name a single row; got the sweep {base!r}")
        if problems:
            raise ValueError("; ".join(problems))
        return methods

    @field_validator("training")
    @classmethod
    def _leaves_the_cells_alone(cls, training: Training) -> Training:
        if taken := [key for key in FROM_THE_CELL if key in training.model_fields_set]:
            raise ValueError(f"{', '.join(taken)} must not be set here: the cells of the suite decide it")
        return training

    @classmethod
    def load(cls, source: str | Path) -> Suite:
        """Read a suite; all that is wrong with it is reported together.

        Args:
            source: YAML file, or the name of a suite that comes with the package.
        """
        path = Path(source)
        if not path.is_file():
            known = sorted(file.stem for file in SUITES.glob("*.yaml"))
            if str(source) not in known:
                raise InputError(f"suite must be a YAML file or one of {', '.join(known)}; got {str(source)!r}")
            path = SUITES / f"{source}.yaml"
        return checked(cls, {"name": path.stem, **read_yaml(path)}, f"{path} is not a suite")

    def changed(self, stores: Mapping[str, Path], seeds: Sequence[int] = ()) -> Suite:
        """Return the suite with other stores for some of its data sets, and with other seeds if any are given."""
        for name in stores:
            if name not in self.datasets:
                raise one_of("data", name, self.datasets)
        changed = {name: DataSet(store=path, label=self.datasets[name].label) for name, path in stores.items()}
        return self.model_copy(update={"datasets": {**self.datasets, **changed}, "seeds": list(seeds) or self.seeds})

    def rows(self) -> dict[str, Method]:
        """Return the rows of the tables by name, a sweep as one row per value."""
        rows: dict[str, Method] = {}
        for name, method in self.methods.items():
            if not method.sweep:
                rows[name] = method
            for key, value in [(key, value) for key, values in method.sweep.items() for value in values]:
                label = f"{method.label or name} {key} {value:g}"
                change = {"options": {**method.options, key: value}, "label": label, "sweep": {key: [value]}}
                rows[f"{name}-{key}{value:g}".replace(".", "_")] = method.model_copy(update=change)
        return rows

    def jobs(self, stores: Mapping[str, Path]) -> list[Job]:
        """Return the trainings on the stores of the data sets, each with every cell that uses it."""
        rows = self.rows()
        found = []
        for dataset, backbone, seed, name in itertools.product(self.datasets, self.backbones, self.seeds, rows):
            row = rows[name]
            if row.method is None:
                continue
            decided = {"data": stores[dataset], "method": row.method, "method_options": row.options,
                       "backbone": backbone, "seed": seed}  # fmt: skip
            config = TrainConfig.make({**self.training.model_dump(), **decided}, f"suite {self.name}, method {name}")
            cells = [
                Cell(dataset, backbone, key, seed, own.label or key, own.temperature_of is not None,
                     {option: values[0] for option, values in own.sweep.items()})
                for key, own in rows.items()
                if name in (key, own.temperature_of)
            ]  # fmt: skip
            cells.sort(key=lambda cell: cell.tempered)  # the network as trained comes first
            found.append(Job(self.name, self.datasets[dataset].label or dataset, config, tuple(cells)))
        return found
