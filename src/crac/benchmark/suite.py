"""What a benchmark compares: data sets × backbones × methods × seeds, read from a YAML file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from crac.benchmark.cell import Cell, Job
from crac.errors import InputError, invalid, one_of
from crac.losses import METHODS
from crac.networks import BACKBONES
from crac.training import TrainConfig

__all__ = ["SUITES", "DataSet", "Method", "Phantom", "Suite"]

SUITES = Path(__file__).parent / "suites"
NAME = r"^[A-Za-z0-9][A-Za-z0-9_-]*$"
"""Names become file names: letters, digits, ``_`` and ``-``."""

Name = Annotated[str, Field(pattern=NAME)]
FROM_THE_CELL = ("data", "method", "method_options", "backbone", "seed")


class Strict(BaseModel):
    """Unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Phantom(Strict):
    """Data the benchmark makes by itself.

    Args:
        kind: ``cardiac`` (ACDC's layout) or ``abdominal`` (FLARE's).
        patients: How many.
        seed: Of the drawing.
        size: Rows and columns of a slice.
        slices: Of a volume.
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
    """Where the images come from: exactly one of the two.

    Args:
        store: Prepared store (``crac prepare``).
        phantom: Data to make.
        label: For people.
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
        options: Its keywords.
        label: For people.
        sweep: One keyword with the values to try; each becomes a row of its own.
        temperature_of: Instead of a loss: another row, whose networks are tempered on the validation set.
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
            raise ValueError(str(one_of("method", self.method, METHODS)))
        if self.temperature_of is not None and (self.options or self.sweep):
            raise ValueError("temperature_of takes no options and no sweep")
        return self


class Suite(Strict):
    """Everything a benchmark runs.

    Args:
        name: Of the suite.
        title: For people.
        datasets: By name.
        backbones: Networks, of :data:`crac.networks.BACKBONES`.
        methods: Rows by name, in the order of the tables.
        seeds: Each cell is trained once with every one.
        training: Settings of :class:`crac.training.TrainConfig` that hold for all cells.
    """

    name: Name
    title: str
    datasets: dict[Name, DataSet] = Field(min_length=1)
    backbones: list[str] = Field(min_length=1)
    methods: dict[Name, Method] = Field(min_length=1)
    seeds: list[Annotated[int, Field(ge=0)]] = Field(min_length=1)
    training: dict[str, Any] = Field(default_factory=dict)

    @field_validator("backbones")
    @classmethod
    def _known_backbones(cls, value: list[str]) -> list[str]:
        for name in value:
            if name not in BACKBONES:
                raise ValueError(str(one_of("backbones", name, BACKBONES)))
        return value

    @model_validator(mode="after")
    def _agrees(self) -> Suite:
        for name, method in self.methods.items():
            base = method.temperature_of
            if base is not None and (base not in self.methods or self.methods[base].temperature_of is not None):
                raise ValueError(f"temperature_of of {name!r} must name a trained method of the suite; got {base!r}")
            if base is not None and self.methods[base].sweep:
                raise ValueError(f"temperature_of of {name!r} names a sweep; it needs a single row")
        if taken := [key for key in FROM_THE_CELL if key in self.training]:
            raise ValueError(f"training: {taken[0]} is set by the cells of the suite, not here")
        return self

    @classmethod
    def load(cls, source: str | Path) -> Suite:
        """Read a suite.

        Args:
            source: YAML file, or the name of a suite that comes with the package.
        """
        path = Path(source)
        if not path.is_file():
            known = sorted(file.stem for file in SUITES.glob("*.yaml"))
            if str(source) not in known:
                raise InputError(f"suite must be a YAML file or one of {', '.join(known)}; got {str(source)!r}")
            path = SUITES / f"{source}.yaml"
        try:
            content = yaml.safe_load(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise InputError(f"{path} cannot be read as YAML: {' '.join(str(error).split())}") from error
        if not isinstance(content, dict):
            raise InputError(f"{path} must hold a suite as 'name: value' lines; got {type(content).__name__}")
        try:
            suite = cls.model_validate({"name": path.stem, **content})
        except ValidationError as error:
            raise invalid(f"{path} is not a suite", error) from error
        suite.jobs({name: Path(name) for name in suite.datasets})  # settings are checked before anything is run
        return suite

    def with_stores(self, stores: Mapping[str, Path]) -> Suite:
        """The suite with other stores for some of its data sets."""
        for name in stores:
            if name not in self.datasets:
                raise one_of("data", name, self.datasets)
        changed = {
            name: DataSet(store=stores[name], label=value.label) if name in stores else value
            for name, value in self.datasets.items()
        }
        return self.model_copy(update={"datasets": changed})

    def with_seeds(self, seeds: list[int]) -> Suite:
        """The suite with other seeds."""
        return self.model_copy(update={"seeds": seeds})

    def rows(self) -> dict[str, Method]:
        """The methods, sweeps spread out."""
        rows: dict[str, Method] = {}
        for name, method in self.methods.items():
            for key, values in method.sweep.items():
                for value in values:
                    options = {**method.options, key: value}
                    label = f"{method.label or name} {key} {value:g}"
                    sweep = {key: [value]}
                    rows[f"{name}-{key}{value:g}".replace(".", "_")] = method.model_copy(
                        update={"options": options, "label": label, "sweep": sweep}
                    )
            if not method.sweep:
                rows[name] = method
        return rows

    def jobs(self, stores: Mapping[str, Path]) -> list[Job]:
        """The trainings of the suite, those of one seed together, each with every cell that uses it.

        Args:
            stores: Store of each data set.
        """
        rows = self.rows()
        trained = {name: row for name, row in rows.items() if row.method is not None}
        return [
            self._job(dataset, stores[dataset], backbone, name, seed, rows)
            for dataset in self.datasets
            for backbone in self.backbones
            for seed in self.seeds
            for name in trained
        ]

    def _job(self, dataset: str, store: Path, backbone: str, name: str, seed: int, rows: dict[str, Method]) -> Job:
        row = rows[name]
        config = TrainConfig.make(
            {
                "pictures": False,
                **self.training,
                "data": store,
                "method": row.method,
                "method_options": row.options,
                "backbone": backbone,
                "seed": seed,
            },
            f"suite {self.name}, training",
        )

        def cell(key: str, tempered: bool) -> Cell:
            own = rows[key]
            sweep = {option: values[0] for option, values in own.sweep.items()}
            return Cell(dataset, backbone, key, seed, own.label or key, tempered, sweep)

        cells = [cell(name, tempered=False)]
        cells += [cell(key, tempered=True) for key, other in rows.items() if other.temperature_of == name]
        label = self.datasets[dataset].label or dataset
        return Job(self.name, label, config, tuple(cells))
