"""What a benchmark compares: data sets × backbones × objectives × methods × variants × splits × seeds, from YAML."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from crac.calibration import CALIBRATORS
from crac.data.recipe import Strict
from crac.errors import InputError, checked, one_of
from crac.losses import METHODS
from crac.metrics.masks import Mask
from crac.networks import BACKBONES
from crac.training.config import TrainConfig, read_yaml

SUITES = Path(__file__).parent / "suites"
FROM_THE_CELL = ("data", "method", "method_options", "backbone", "seed")
"""Settings of a training that the cells of a suite decide."""
SPLIT = "split_seed"
"""Another one, where the suite has several splits."""

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
        sweep: The keyword that is varied, with its value in this cell.
        base: Name of the row whose networks are measured, if not the row itself.
        calibrator: What was fitted on the validation set, one of :data:`crac.CALIBRATORS`; None for nothing.
        fitted_on: Which voxels it was fitted on.
        mirror: Whether predictions are averaged over mirrored images.
        objective: Name of what all methods were added to; empty where a suite has one only.
        split: Seed of the split; None where a suite has one only.
    """

    dataset: str
    backbone: str
    method: str
    seed: int
    label: str
    sweep: dict[str, float] = field(default_factory=dict)
    base: str = ""
    calibrator: str | None = None
    fitted_on: Mask = "band"
    mirror: bool = False
    objective: str = ""
    split: int | None = None

    @property
    def name(self) -> str:
        """A name that is unique in a benchmark and can be that of a file."""
        objective = f"{self.objective}." if self.objective else ""
        return f"{self.dataset}.{self.backbone}.{objective}{self.method}.{self.run}"

    @property
    def run(self) -> int | str:
        """Which of the trainings of a row it is: the seed, after that of the split where there are several."""
        return self.seed if self.split is None else f"{self.split}-{self.seed}"

    @property
    def as_trained(self) -> bool:
        """Whether the network is measured as it is."""
        return self.calibrator is None and not self.mirror


@dataclass(frozen=True)
class Job:
    """One training, and the cells that are measured on its network.

    Args:
        suite: Name of the suite.
        dataset_label: How the tables call the data set.
        config: Settings of the training.
        cells: The first is the network as trained, the others are variants that need no training.
        masks: Which voxels calibration is measured on; empty for those of the protocol.
    """

    suite: str
    dataset_label: str
    config: TrainConfig
    cells: tuple[Cell, ...]
    masks: tuple[Mask, ...] = ()

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
    sweep: dict[str, Annotated[list[int | float], Field(min_length=1)]] = Field(default_factory=dict, max_length=1)
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


class Variant(Strict):
    """Another way to use the same networks; every method becomes one more row.

    Args:
        calibrator: What is fitted on the validation set, one of :data:`crac.CALIBRATORS`.
        mirror: Whether predictions are averaged over mirrored images.
        fitted_on: Which voxels the calibrator is fitted on.
        label: What the tables add to the method's name.
    """

    calibrator: str | None = None
    mirror: bool = False
    fitted_on: Mask = "band"
    label: str | None = None

    @field_validator("calibrator")
    @classmethod
    def _known(cls, name: str | None) -> str | None:
        if name is not None and name not in CALIBRATORS:
            raise one_of("calibrator", name, CALIBRATORS)
        return name

    @model_validator(mode="after")
    def _something(self) -> Variant:
        if self.calibrator is None and not self.mirror:
            raise ValueError("must name a calibrator or set mirror: the network as trained is measured anyway")
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
        variants: Further ways to use the networks of every method, by name.
        objectives: Options of the losses that every method is run with in turn, by name; once without any by default.
        splits: Seeds of the split by patient, each with all seeds; that of the training by default.
        masks: Which voxels calibration is measured on; those of the protocol by default. The tables need
            ``label_foreground``, and ``band`` or ``union_foreground``.
        training: Settings of the trainings that hold for all cells.
    """

    name: Name
    title: str
    datasets: dict[Name, DataSet] = Field(min_length=1)
    backbones: list[str] = Field(min_length=1)
    methods: dict[Name, Method] = Field(min_length=1)
    seeds: list[Annotated[int, Field(ge=0)]] = Field(min_length=1)
    variants: dict[Name, Variant] = Field(default_factory=dict)
    objectives: dict[Name, dict[str, Any]] = Field(default_factory=dict)
    splits: list[Annotated[int, Field(ge=0)]] = Field(default_factory=list)
    masks: list[Mask] = Field(default_factory=list)
    training: Training = Training()

    @field_validator("backbones")
    @classmethod
    def _known(cls, backbones: list[str]) -> list[str]:
        if unknown := [name for name in backbones if name not in BACKBONES]:
            raise one_of("backbones", ", ".join(unknown), BACKBONES)
        return backbones

    @field_validator("datasets")
    @classmethod
    def _told_apart(cls, datasets: dict[str, DataSet]) -> dict[str, DataSet]:
        number = Counter(dataset.label or name for name, dataset in datasets.items())
        if twice := [label for label, times in number.items() if times > 1]:
            raise ValueError(
                f"datasets must have labels of their own, columns are named by them; got {twice[0]!r} twice"
            )
        return datasets

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

    @field_validator("masks")
    @classmethod
    def _enough_for_the_tables(cls, masks: list[Mask]) -> list[Mask]:
        if masks and ("label_foreground" not in masks or not {"band", "union_foreground"} & set(masks)):
            listed = ", ".join(masks)
            raise ValueError(f"masks must hold label_foreground, and band or union_foreground; got {listed}")
        return masks

    @field_validator("training")
    @classmethod
    def _leaves_the_cells_alone(cls, training: Training) -> Training:
        if taken := [key for key in FROM_THE_CELL if key in training.model_fields_set]:
            raise ValueError(f"{', '.join(taken)} must not be set here: the cells of the suite decide it")
        return training

    @model_validator(mode="after")
    def _one_way_to_split(self) -> Suite:
        if self.splits and ({"split", SPLIT} & self.training.model_fields_set):
            raise ValueError("splits and a split or split_seed of the training exclude each other")
        return self

    @model_validator(mode="after")
    def _one_name_a_row(self) -> Suite:
        rows = self._rows()
        names = [name for name, _ in rows]
        names += [f"{name}-{key}" for name, row in rows if row.method is not None for key in self.variants]
        if twice := sorted(name for name, number in Counter(names).items() if number > 1):
            raise ValueError(f"methods, values of sweeps and variants give two rows the name {', '.join(twice)}")
        return self

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

    def changed(
        self,
        stores: Mapping[str, Path],
        seeds: Sequence[int] = (),
        splits: Sequence[int] = (),
        backbones: Sequence[str] = (),
        objectives: Sequence[str] = (),
    ) -> Suite:
        """Return the suite with other stores, and with a part of its other axes where some are given."""
        for name in stores:
            if name not in self.datasets:
                raise one_of("data", name, self.datasets)
        changed = {name: DataSet(store=path, label=self.datasets[name].label) for name, path in stores.items()}
        update: dict[str, Any] = {"datasets": {**self.datasets, **changed}, "seeds": list(seeds) or self.seeds}
        axes: tuple[tuple[str, Sequence[Any], Iterable[Any]], ...] = (
            ("splits", splits, self.splits),
            ("backbones", backbones, self.backbones),
            ("objectives", objectives, self.objectives),
        )
        for name, chosen, known in axes:
            if unknown := [one for one in chosen if one not in known]:
                raise one_of(name, unknown[0], known)
            if chosen:
                update[name] = list(chosen)
        if objectives:
            update["objectives"] = {name: self.objectives[name] for name in objectives}
        return self.model_copy(update=update)

    def rows(self) -> dict[str, Method]:
        """Return the rows of the tables by name, a sweep as one row per value."""
        return dict(self._rows())

    def _rows(self) -> list[tuple[str, Method]]:
        rows = []
        for name, method in self.methods.items():
            if not method.sweep:
                rows.append((name, method))
            for key, value in [(key, value) for key, values in method.sweep.items() for value in values]:
                label = f"{method.label or name} {key} {value:g}"
                change = {"options": {**method.options, key: value}, "label": label, "sweep": {key: [value]}}
                rows.append((f"{name}-{key}{value:g}".replace(".", "_"), method.model_copy(update=change)))
        return rows

    def jobs(self, stores: Mapping[str, Path]) -> list[Job]:
        """Return the trainings on the stores of the data sets, each with every cell that uses it.

        All methods come before the next seed, and all seeds before the next split, so that what is there after a part
        of the time can be compared.
        """
        rows = self.rows()
        trained = [name for name, row in rows.items() if row.method is not None]
        splits: list[int | None] = [*self.splits] or [None]
        found = []
        for dataset, backbone, split, seed, objective, name in itertools.product(
            self.datasets, self.backbones, splits, self.seeds, self.objectives or [""], trained
        ):
            row = rows[name]
            decided = {
                "data": stores[dataset], "method": row.method, "backbone": backbone, "seed": seed,
                "method_options": {**row.options, **self.objectives.get(objective, {})},
            }  # fmt: skip
            if split is not None:
                decided[SPLIT] = split
            config = TrainConfig.make({**self.training.model_dump(), **decided}, f"suite {self.name}, method {name}")
            label = row.label or name
            sweep = {option: values[0] for option, values in row.sweep.items()}
            own = Cell(dataset, backbone, name, seed, label, sweep, objective=objective, split=split)
            tempered = [
                replace(own, method=key, label=other.label or key, base=name, calibrator="temperature", fitted_on="all")
                for key, other in rows.items()
                if other.temperature_of == name
            ]
            variants = [
                replace(
                    own, method=f"{name}-{key}", label=f"{label} + {one.label or key}", base=name,
                    calibrator=one.calibrator, fitted_on=one.fitted_on, mirror=one.mirror,
                )
                for key, one in self.variants.items()
            ]  # fmt: skip
            cells = (own, *tempered, *variants)
            found.append(Job(self.name, self.datasets[dataset].label or dataset, config, cells, tuple(self.masks)))
        return found
