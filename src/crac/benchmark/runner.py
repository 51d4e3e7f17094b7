"""Run a suite: what is finished is kept, what is broken is named, the rest is done."""

import fnmatch
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from crac.benchmark.job import Folder, do_job
from crac.benchmark.results import CellResult
from crac.benchmark.suite import Cell, Job, Suite
from crac.benchmark.watch import Watch
from crac.data import Split, Store, phantom, prepare
from crac.errors import InputError, ProblemsError, check_number
from crac.files import remove_folder, remove_partials
from crac.jobs import Outcome, run_jobs
from crac.training.config import PLANNED, TrainConfig
from crac.training.engine import check_devices


@dataclass(frozen=True)
class Summary:
    """How a benchmark stands after a call.

    Args:
        done: Names of the runs that are finished, now or before.
        broken: Name of a run -> why it failed.
        left: Names of the runs that were not begun or not finished.
    """

    done: list[str]
    broken: dict[str, str]
    left: list[str]


def run_benchmark(
    suite: Suite,
    out: str | Path,
    *,
    jobs: int | None = None,
    ray: str | None = None,
    only: Sequence[str] = (),
    time_limit: float | None = None,
) -> Summary:
    """Run what is not finished yet.

    Args:
        suite: What to compare.
        out: Folder of the benchmark; a second call with the same folder goes on.
        jobs: Runs at a time; more than one is done in processes, which share the GPUs. By default 1, on Ray as many
            as the cluster has GPUs or processors.
        ray: Address of a Ray cluster, ``local`` to start one.
        only: Names of methods, with ``*`` and ``?``; all by default.
        time_limit: Seconds after which no run is begun, nor one that would take longer than what is left.
    """
    if jobs is not None:
        check_number("jobs", jobs, least=1, whole=True)
    folder = Folder(Path(out).absolute())
    stores = {name: (data.store or folder.data(name)).absolute() for name, data in suite.datasets.items()}
    chosen = _choose(suite.jobs(stores), only)
    _refuse_other_settings(chosen, folder)
    for own in ("results", "maps", "broken", "."):
        remove_partials(folder.path / own)
    for name in suite.datasets:
        _make_ready(suite, name, folder)
    watch = Watch(chosen, folder, jobs or 1, time_limit)
    if ray is None and watch.named("waiting"):
        try:
            check_devices(chosen[0].config)  # all jobs need the same
        except InputError as error:
            raise InputError(f"suite {suite.name}, training: {error}") from error
    with watch.shown():
        for event in run_jobs(watch.admitted(), partial(do_job, folder=folder), jobs, ray):
            watch.see(event)
            if isinstance(event, Outcome) and event.stopped:
                raise KeyboardInterrupt
    return Summary(watch.named("done"), watch.problems, watch.named("waiting"))


def _choose(jobs: list[Job], only: Sequence[str]) -> list[Job]:
    """Return the jobs with a cell whose method matches; of each the matching cells and the training itself.

    What is measured on the networks of a row belongs to it.
    """

    def matches(cell: Cell) -> bool:
        names = (cell.method, cell.base)
        return not only or any(fnmatch.fnmatchcase(name, pattern) for pattern in only for name in names)

    chosen = [
        replace(job, cells=(job.cells[0], *filter(matches, job.cells[1:])))
        for job in jobs
        if any(map(matches, job.cells))
    ]
    if not chosen:
        names = dict.fromkeys(cell.method for job in jobs for cell in job.cells)
        raise InputError(f"only must match one of {', '.join(names)}; got {' '.join(only)}")
    return chosen


def _refuse_other_settings(jobs: Sequence[Job], folder: Folder) -> None:
    """Results of one folder must be comparable: the same cell with other settings belongs elsewhere."""
    problems = []
    for job in jobs:
        for cell in filter(lambda cell: folder.result(cell).exists(), job.cells):
            kept = CellResult.load(folder.result(cell)).settings
            own = TrainConfig.written({"data": job.config.data, **kept}).model_dump(mode="json")
            problems += [
                f"{cell.name} was run with {name} {own.get(name)!r}, the suite says {value!r}"
                for name, value in job.settings.items()
                if own.get(name) != value and not (value is None and name in PLANNED)
            ]
    if problems:
        raise ProblemsError(f"{folder.path} holds results of other settings, choose another --out", problems)


def _make_ready(suite: Suite, name: str, folder: Folder) -> None:
    """Make a data set that is artificial, and refuse one that cannot be tested on before anything is trained."""
    dataset = suite.datasets[name]
    made = dataset.phantom
    if made is not None and not (folder.data(name) / "manifest.json").exists():
        draw, layout = {"cardiac": (phantom.cardiac, "acdc"), "abdominal": (phantom.abdominal, "flare")}[made.kind]
        remove_folder(folder.data(f"{name}-raw"))  # what a killed process has left of it
        raw = draw(folder.data(f"{name}-raw"), made.patients, made.seed, made.size, made.slices)
        prepare(layout, raw, folder.data(name), spacing=made.spacing, crop=made.crop)
    try:
        store = Store.open(dataset.store or folder.data(name))
    except InputError as error:
        raise InputError(f"data set {name}: {error} (another place: --data {name}=STORE)") from error
    file = suite.training.split
    seeds = suite.splits or [suite.training.split_seed]
    splits = [store.split(seed) for seed in seeds] if file is None else [Split.load(file, store.cases)]
    patients = len({case.patient for case in store.cases.values()})
    for split, part in itertools.product(splits, ("train", "validation", "test")):
        if not getattr(split, part):
            raise InputError(
                f"data set {name}: its {patients} patients leave the {part} part of the split empty; a benchmark needs "
                "patients to train, to validate and to test"
            )
    if not all(any(sum(store.cases[case].prepared_voxels[1:]) for case in split.test) for split in splits):
        raise InputError(
            f"data set {name}: no volume of the test part has a voxel labelled foreground, so nothing can be measured"
        )
