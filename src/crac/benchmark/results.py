"""The results of a benchmark: one JSON file a cell, and tables of all cells on one data set with one backbone."""

from __future__ import annotations

import itertools
import json
import lzma
import math
import tarfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crac.benchmark.suite import Cell
from crac.calibration import CALIBRATORS
from crac.errors import InputError, require
from crac.files import PARTIAL, finite, read_json, replacing, write_text
from crac.losses import METHODS
from crac.metrics.claims import patient_difference, patient_mean
from crac.report.measure import Difference, Measure

if TYPE_CHECKING:
    from pandas import DataFrame, Series

FORMAT = 2
"""1: without calibrators but for a temperature, without variants, objectives and several splits."""
DIGITS = 7
"""Significant digits kept: more than any table shows, few enough for small files."""

MOST_SHOWN = 16
"""Rows of a figure."""

MASK = "label_foreground"
"""The voxels the paper measures calibration on."""


MAIN = (
    Measure("dsc", "DSC", 3, True),
    Measure("hd95", "HD95", 2),
    Measure(f"ece[{MASK}]", "ECE"),
    Measure(f"tace[{MASK}]", "TACE"),
)
"""The four measures of the paper."""


FAIR = (("nll", "NLL"), ("brier", "Brier"), ("ece", "ECE"), ("cece", "class-wise ECE"))
"""Measures that leave out no voxel for its probability: two proper scores, calibration of confidence and of classes."""


@dataclass(frozen=True)
class CellResult:
    """What came out of a cell.

    Args:
        cell: Which cell it is.
        suite: Suite it was run for.
        dataset: The data set: its label, its cases, how it was prepared.
        classes: Names of the classes, the background first.
        settings: Settings of the training.
        environment: Versions and device.
        seconds: Duration of ``training`` and ``evaluation``.
        calibrator: Name, coefficients and circumstances of the calibrator that was fitted; None where none was.
        best_epoch: The epoch whose weights were tested.
        protocol: How the volumes were measured.
        columns: Names of the measures.
        volumes: Name of a volume -> its measures, in the order of ``columns``.
        patients: Name of a volume -> its patient.
        pooled: Calibration of all voxels together, by mask.
        logits: Histograms of the winning and of the other logits.
        history: Training curves: column -> one value per epoch.
    """

    cell: Cell
    suite: str
    dataset: dict[str, Any]
    classes: list[str]
    settings: dict[str, Any]
    environment: dict[str, Any]
    seconds: dict[str, float]
    calibrator: dict[str, Any] | None
    best_epoch: int
    protocol: dict[str, Any]
    columns: list[str]
    volumes: dict[str, list[float]]
    patients: dict[str, str]
    pooled: dict[str, Any]
    logits: dict[str, Any]
    history: dict[str, list[float]]

    def save(self, path: Path) -> None:
        """Write the file, one field a line."""
        path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(finite({"format": FORMAT, **asdict(self)}))
        fields = json.loads(text, parse_float=lambda number: float(f"{float(number):.{DIGITS}g}"))
        lines = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in fields.items()]
        write_text(path, "{\n" + ",\n".join(lines) + "\n}\n")

    @classmethod
    def load(cls, path: Path) -> CellResult:
        """Read a file back."""
        return cls.parse(read_json(path), str(path))

    @classmethod
    def parse(cls, content: Any, path: str) -> CellResult:
        """Return the result that JSON holds, of a file that messages call ``path``."""
        try:
            if (version := content.pop("format")) > FORMAT:
                raise InputError(f"{path} has result format {version}, this crac reads up to {FORMAT}: upgrade crac")
            if version == 1:
                _upgrade(content)
            for numbers in (content["volumes"], content["history"]):
                for name, values in numbers.items():
                    numbers[name] = [math.nan if value is None else value for value in values]
            result = cls(cell=Cell(**content.pop("cell")), **content)
            if Path(result.cell.name).name != result.cell.name:  # it becomes the name of a file
                raise ValueError(f"the name of its cell is {result.cell.name!r}")
            for what, name, known in (
                ("method", result.settings["method"], METHODS),
                ("calibrator", result.cell.calibrator or "identity", CALIBRATORS),
            ):
                if name not in known:
                    raise InputError(f"{path} has the {what} {name!r}, this crac knows {', '.join(known)}")
            return result
        except InputError:
            raise
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(f"{path} is not the result of a benchmark: {error}") from error

    def frame(self) -> DataFrame:
        """Return the measures as a table: a row per volume, with its patient."""
        pandas = require("pandas")
        table: DataFrame = pandas.DataFrame.from_dict(self.volumes, "index", columns=self.columns, dtype=float)
        table.insert(0, "patient", table.index.map(self.patients))
        return table

    @property
    def temperature(self) -> float:
        """The temperature that was fitted; NaN where none was, or several."""
        values = [] if self.calibrator is None else self.calibrator.get("temperature") or []
        return float(values[0]) if len(values) == 1 else math.nan

    def numbers(self) -> dict[str, float]:
        """Return what was measured once for the cell, not for every volume."""
        pooled = self.pooled[MASK]
        regions = {f"{key}.{name}": part[key] for name, part in pooled["by_region"].items() for key in ("ece", "gap")}
        classes = {f"ece.{name}": part["ece"] for name, part in pooled["by_class"].items()}
        if all("counted" in part for part in pooled["by_class"].values()):  # not in results of older versions
            counted = [part["counted"] for part in pooled["by_class"].values()]
            classes["counted"] = sum(counted) / len(counted)
        return {
            **{f"pooled.{key}": value for key, value in {**classes, **regions}.items()},
            **self.seconds,
            "best_epoch": self.best_epoch,
            "temperature": self.temperature,
        }


def _upgrade(content: dict[str, Any]) -> None:
    """Turn the content of a file of format 1, which knew a temperature only, into that of format 2."""
    temperature, cell = content.pop("temperature"), content["cell"]
    content["calibrator"] = None
    if cell.pop("tempered"):
        cell |= {"calibrator": "temperature", "fitted_on": "all"}
        content["calibrator"] = {"name": "temperature", "mask": "all", "temperature": [temperature]}


def load_results(folders: Iterable[str | Path]) -> list[CellResult]:
    """Return every result in some folders, in the order of their cells' names; a cell that occurs twice is refused.

    A folder may hold files ``*.json`` and archives of them, ``*.tar.xz``, a twentieth the size.
    """
    found: dict[str, tuple[str, CellResult]] = {}
    for path, _, result in _results_in(folders):
        if result.cell.name in found:
            raise InputError(f"{path} holds the same cell as {found[result.cell.name][0]}")
        found[result.cell.name] = path, result
    if not found:
        raise InputError(f"{', '.join(map(str, folders))}: no results found there")
    return [found[name][1] for name in sorted(found)]


def merge_results(sources: Iterable[str | Path], out: Path) -> list[Path]:
    """Copy result files of other machines into a folder of results; those that are there already must be the same.

    Args:
        sources: Folders of results, archives among them.
        out: Folder to copy into; made if needed.

    Returns:
        The files that are new.

    Raises:
        InputError: A file is no result, or another one of the same cell is there.
    """
    new: dict[Path, bytes] = {}
    for path, content, result in _results_in(sources):
        target = out / f"{result.cell.name}.json"
        known = new.get(target) or (target.read_bytes() if target.exists() else content)
        if known != content:
            raise InputError(f"{path} differs from the result of the same cell in {out}: remove one of them")
        if not target.exists():
            new[target] = content
    out.mkdir(parents=True, exist_ok=True)
    for target, content in new.items():
        with replacing(target) as partial:
            partial.write_bytes(content)
    return list(new)


def _results_in(folders: Iterable[str | Path]) -> Iterator[tuple[str, bytes, CellResult]]:
    """Yield for each result of some folders where it is, the file's content, and what that says."""
    for path, content in itertools.chain.from_iterable(map(_files, map(Path, folders))):
        try:
            data = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path} cannot be read as JSON: {error}") from error
        yield path, content, CellResult.parse(data, path)


def _files(folder: Path) -> Iterator[tuple[str, bytes]]:
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder of results")
    for path in sorted(folder.rglob("*.json")):
        if not path.name.startswith(PARTIAL):  # what a killed process left, or another is writing right now
            yield str(path), path.read_bytes()
    for path in sorted(folder.rglob("*.tar.xz")):
        try:
            with tarfile.open(path) as archive:
                for member in archive:
                    if member.name.endswith(".json") and (file := archive.extractfile(member)):
                        yield f"{path}, {member.name}", file.read()
        except (tarfile.TarError, lzma.LZMAError, EOFError) as error:
            raise InputError(f"{path} cannot be read as an archive: {error}") from error


class Group:
    """All results on one data set with one backbone.

    A measure that some results lack, because an older version wrote them, is left out of both tables, so that a column
    is either there for every method or not at all. So is a split that some methods have not been trained on yet: rows
    of one table are tested on the same patients.

    Args:
        results: The results.

    Attributes:
        waiting: Seeds of the splits that are left out.
        labels: Name of a method -> what the tables call it, in the order of :data:`crac.METHODS`.
        methods: The names without the values of sweeps: the rows of the tables.
        trained: Those of them without a calibrator and without mirroring.
        ours: Those of them trained with CRaC.
        rivals: Those of them that the text compares ours with: NACL and temperature scaling.
        sweeps: Loss -> the keyword that was varied, and for each of its values, growing, the name of the method; a row
            of the tables that sets the keyword among its options is one of them. Of several keywords each has its own,
            called by the loss and the keyword.
        volumes: A row per method, seed and volume, a column per measure.
        runs: A row per method and seed, with the means over the volumes and what was measured once.
    """

    def __init__(self, results: Iterable[CellResult]) -> None:
        pandas = require("pandas")
        found = sorted(results, key=_order)
        splits: dict[str, set[int | None]] = {}
        for result in found:
            splits.setdefault(result.cell.method, set()).add(result.cell.split)
        every = set.union(*splits.values())
        if None in every and len(every) > 1:
            cell = found[0].cell
            raise InputError(
                f"some results on {cell.dataset} with {cell.backbone} are of a suite with several splits and some of "
                "one without: the same patients would count twice, keep them in folders of their own"
            )
        shared = set.intersection(*splits.values()) or every
        self.waiting = sorted(split for split in every - shared if split is not None)
        self.results = [result for result in found if result.cell.split in shared]
        self.of: dict[str, list[CellResult]] = {}
        for result in self.results:
            self.of.setdefault(result.cell.method, []).append(result)
        firsts = {method: found[0] for method, found in self.of.items()}
        self.labels = {method: first.cell.label for method, first in firsts.items()}
        self.methods = [method for method, first in firsts.items() if not first.cell.sweep]
        loss = {method: first.settings["method"] for method, first in firsts.items()}
        self.ours = [method for method in self.methods if loss[method] == "crac"]
        self.trained = [method for method in self.methods if firsts[method].cell.as_trained]
        others = [method for method in self.methods if method not in self.ours]
        self.rivals = [m for m in others if loss[m] == "nacl" or firsts[m].cell.calibrator == "temperature"]
        swept = dict.fromkeys((loss[method], option) for method, first in firsts.items() for option in first.cell.sweep)
        number = Counter(name for name, _ in swept)
        self.sweeps = {
            name if number[name] == 1 else f"{name}-{option}": (option, _sweep(name, option, firsts))
            for name, option in swept
        }

        keys = [(result.cell.method, result.cell.run) for result in self.results]
        frames = [result.frame() for result in self.results]
        self.volumes: DataFrame = pandas.concat(frames, keys=keys, names=["method", "seed", "volume"], join="inner")
        means = self.volumes.drop(columns="patient").groupby(level=["method", "seed"]).mean()
        index = pandas.MultiIndex.from_tuples(keys, names=["method", "seed"])
        once = pandas.DataFrame([result.numbers() for result in self.results], index, dtype=float)
        self.runs: DataFrame = once.join(means)

        if f"nll[{self.fair_mask}]" not in self.runs:
            raise InputError(
                f"the results on {found[0].cell.dataset} with {found[0].cell.backbone} were measured on masks of which "
                "they share neither band nor union_foreground: keep them in folders of their own"
            )
        first = self.results[0]
        self.dataset, self.backbone, self.classes = first.cell.dataset, first.cell.backbone, first.classes
        self.objective = first.cell.objective
        self.label: str = first.dataset["label"]
        self.name = "-".join(filter(None, [self.dataset, self.objective, self.backbone]))
        self.title = ", ".join(filter(None, [self.label, self.objective, self.backbone]))

    @property
    def shown(self) -> list[str]:
        """The rows that figures show: where there are many, the networks as trained, if they are there."""
        return self.methods if len(self.methods) <= MOST_SHOWN else self.trained or self.methods

    @property
    def fair_mask(self) -> str:
        """The voxels that favour no method as far as results have them: near foreground, labelled or predicted."""
        return "band" if "nll[band]" in self.runs else "union_foreground"

    @property
    def fair(self) -> tuple[Measure, ...]:
        """The measures of :data:`FAIR`, on that mask."""
        return tuple(Measure(f"{key}[{self.fair_mask}]", heading) for key, heading in FAIR)

    def over_seeds(self, key: str) -> DataFrame:
        """Return ``mean`` and ``std`` over the seeds by method; NaN where a seed has no value.

        Of several splits each weighs the same, and ``std`` is that of seeds within a split: other patients are what
        intervals are for.
        """
        split = {result.cell.run: str(result.cell.split) for result in self.results}
        runs = self.runs[key].rename("value").reset_index()
        runs["split"] = runs["seed"].map(split)
        parts = runs.groupby(["method", "split"])["value"]
        runs["square"] = (runs["value"] - parts.transform("mean")) ** 2
        own = runs.groupby("method")
        freedom = own["value"].count() - own["split"].nunique()
        spread = (own["square"].sum() / freedom) ** 0.5
        numbers: DataFrame = parts.mean().groupby("method").mean().to_frame("mean").assign(std=spread)
        return numbers.where(own["value"].count() == own.size())

    def by_patient(self, key: str, methods: Sequence[str]) -> DataFrame:
        """Return a measure's mean over seeds and a patient's volumes: a row per patient whom every method has.

        Where one of the methods lacks a seed of another, what is left out is the seed: its trainings have no partner.
        """
        seeds = set.intersection(*({result.cell.run for result in self.of[method]} for method in methods))
        own = self.volumes.loc[list(methods), ["patient", key]]
        values = own[own.index.get_level_values("seed").isin(list(seeds))].groupby(["patient", "method"])[key]
        means: Series[float] = values.mean().where(values.count() == values.size())
        return means.unstack("method").reindex(columns=list(methods)).dropna()

    def interval(self, method: str, measure: Measure) -> Difference | None:
        """Return the mean over patients with its 95 % interval; None where no patient has a value."""
        values = self.by_patient(measure.key, [method])[method]
        return None if values.empty else Difference(measure, *patient_mean(values), len(values))

    def difference(self, first: str, second: str, measure: Measure) -> Difference | None:
        """Compare two methods on the patients both were tested on; None where there is none."""
        table = self.by_patient(measure.key, [first, second])
        if table.empty:
            return None
        return Difference(measure, *patient_difference(table[first], table[second]), len(table))


def group_results(results: Sequence[CellResult]) -> list[Group]:
    """Sort results into groups, data sets, backbones and objectives in alphabetical order, ``unet`` first."""
    groups: dict[tuple[str, bool, str, str], list[CellResult]] = {}
    for result in results:
        dataset, backbone = result.cell.dataset, result.cell.backbone
        groups.setdefault((dataset, backbone != "unet", backbone, result.cell.objective), []).append(result)
    return [Group(groups[key]) for key in sorted(groups)]


def by_data(groups: Iterable[Group]) -> list[list[Group]]:
    """Return the groups that have the data set and the backbone in common, one for each objective."""
    alike: dict[tuple[str, str], list[Group]] = {}
    for group in groups:
        alike.setdefault((group.dataset, group.backbone), []).append(group)
    return list(alike.values())


def _order(result: CellResult) -> tuple[Any, ...]:
    cell = result.cell
    place = list(METHODS).index(result.settings["method"])
    variant = (cell.mirror, list(CALIBRATORS).index(cell.calibrator or "identity"))
    return place, sorted(cell.sweep.items()), cell.base or cell.method, variant, cell.method, cell.split or 0, cell.seed


def _sweep(loss: str, option: str, firsts: dict[str, CellResult]) -> dict[float, str]:
    found: dict[float, str] = {}
    for method, first in firsts.items():
        value = first.settings["method_options"].get(option)
        alike = first.settings["method"] == loss and not first.cell.sweep.keys() - {option}
        if alike and value is not None and first.cell.as_trained:
            found.setdefault(value, method)
    return dict(sorted(found.items()))
