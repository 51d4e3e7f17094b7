"""Run a suite: what is finished is kept, what is broken is named, the rest is done."""

from __future__ import annotations

import fnmatch
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from crac.benchmark.cell import Folder, Job
from crac.benchmark.result import CellResult
from crac.benchmark.schedule import Started, in_processes, in_turn, on_ray
from crac.benchmark.suite import DataSet, Suite
from crac.benchmark.watch import Watch
from crac.data import Store, phantom, prepare
from crac.errors import InputError, ProblemsError
from crac.training.engine import check_devices

__all__ = ["Summary", "run_benchmark"]


@dataclass(frozen=True)
class Summary:
    """How a call ended.

    Args:
        done: Names of the runs that are finished, now or before.
        broken: Name -> why.
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
    if jobs is not None and jobs < 1:
        raise InputError(f"jobs must be at least 1; got {jobs}")
    folder = Folder(Path(out).absolute())
    stores = {name: _store(name, value, folder) for name, value in suite.datasets.items()}
    chosen = _choose(suite.jobs(stores), only)
    _refuse_other_settings(chosen, folder)
    _prepare(suite, folder)
    open_jobs = [job for job in chosen if _missing(job, folder)]
    if ray is None:
        _refuse_missing_devices(suite, open_jobs)
    clock = Clock(chosen, folder, time_limit)
    queue = clock.admitted(iter(open_jobs))
    if ray is not None:
        events = on_ray(queue, folder, ray, jobs)
    elif (jobs or 1) > 1:
        events = in_processes(queue, folder, jobs or 1)
    else:
        events = in_turn(queue, folder)
    finished = {job.name for job in chosen} - {job.name for job in open_jobs}
    broken: dict[str, str] = {}
    with Watch(chosen, finished, folder, jobs or 1) as watch:
        for event in events:
            if isinstance(event, Started):
                watch.started(event.job)
                continue
            watch.ended(event)
            clock.learn(event.job, event.seconds)
            if event.problem:
                broken[event.job] = event.problem
            if event.stopped:
                raise KeyboardInterrupt
    done = [job.name for job in chosen if not _missing(job, folder)]
    return Summary(done, broken, [job.name for job in chosen if job.name not in {*done, *broken}])


class Clock:
    """Begins no run that would pass the time limit, as far as earlier runs tell how long it takes.

    Args:
        jobs: All of the benchmark.
        folder: Whose results tell about earlier calls.
        limit: In seconds, None for no limit.
    """

    def __init__(self, jobs: Sequence[Job], folder: Folder, limit: float | None) -> None:
        self.end = None if limit is None else time.monotonic() + limit
        self.jobs = {job.name: job for job in jobs}
        self.took: dict[str, float] = {}
        for job in jobs if limit is not None else ():
            if folder.result(job.cells[0]).exists():
                seconds = CellResult.load(folder.result(job.cells[0])).seconds
                self.took[job.name] = seconds["training"] + len(job.cells) * seconds["evaluation"]

    def learn(self, job: str, seconds: float) -> None:
        """A run took so long."""
        self.took[job] = max(seconds, self.took.get(job, 0.0))

    def admitted(self, jobs: Iterator[Job]) -> Iterator[Job]:
        """The jobs, until one would pass the limit."""
        for job in jobs:
            if self.end is not None and time.monotonic() + self._estimate(job) > self.end:
                return
            yield job

    def _estimate(self, job: Job) -> float:
        """The longest run of the same method, or else of any method, on the same data with the same backbone."""
        cell = job.cells[0]
        alike = {
            name: seconds
            for name, seconds in self.took.items()
            if (self.jobs[name].cells[0].dataset, self.jobs[name].cells[0].backbone) == (cell.dataset, cell.backbone)
        }
        same = [seconds for name, seconds in alike.items() if self.jobs[name].cells[0].method == cell.method]
        return max(same or alike.values(), default=0.0)


def _choose(jobs: list[Job], only: Sequence[str]) -> list[Job]:
    """The jobs with a cell whose method matches; of each the matching cells and the training itself."""
    if not only:
        return jobs
    chosen = []
    for job in jobs:
        first, *rest = job.cells
        wanted = [cell for cell in rest if any(fnmatch.fnmatchcase(cell.method, pattern) for pattern in only)]
        if wanted or any(fnmatch.fnmatchcase(first.method, pattern) for pattern in only):
            chosen.append(replace(job, cells=(first, *wanted)))
    if not chosen:
        names = dict.fromkeys(cell.method for job in jobs for cell in job.cells)
        raise InputError(f"only must match one of {', '.join(names)}; got {' '.join(only)}")
    return chosen


def _missing(job: Job, folder: Folder) -> bool:
    return any(not folder.result(cell).exists() for cell in job.cells)


def _refuse_other_settings(jobs: Sequence[Job], folder: Folder) -> None:
    """Results of one folder must be comparable: the same cell with other settings belongs elsewhere."""
    problems = []
    for job in jobs:
        for cell in job.cells:
            if not folder.result(cell).exists():
                continue
            own = CellResult.load(folder.result(cell)).settings
            for name, value in job.settings.items():
                if own.get(name) != value:
                    problems.append(f"{cell.name} was run with {name} {own.get(name)!r}, the suite says {value!r}")
                    break
    if problems:
        raise ProblemsError(f"{folder.path} holds results of other settings, choose another --out", problems)


def _refuse_missing_devices(suite: Suite, jobs: Sequence[Job]) -> None:
    """Once, instead of from every run."""
    for job in jobs:
        try:
            check_devices(job.config)
        except InputError as error:
            raise InputError(f"suite {suite.name}, training: {error}") from error


def _store(name: str, dataset: DataSet, folder: Folder) -> Path:
    return folder.data(name) if dataset.store is None else dataset.store.absolute()


def _prepare(suite: Suite, folder: Folder) -> None:
    """Every store is there before the first run: made-up data is made, the others are opened once."""
    for name, dataset in suite.datasets.items():
        if dataset.store is not None:
            try:
                Store.open(dataset.store)
            except InputError as error:
                raise InputError(f"data set {name}: {error} (another place: --data {name}=STORE)") from error
        elif not (folder.data(name) / "manifest.json").exists():
            made = dataset.phantom
            assert made is not None
            draw = {"cardiac": phantom.cardiac, "abdominal": phantom.abdominal}[made.kind]
            raw = draw(folder.data(f"{name}-raw"), made.patients, made.seed, made.size, made.slices)
            layout = {"cardiac": "acdc", "abdominal": "flare"}[made.kind]
            prepare(layout, raw, folder.data(name), spacing=made.spacing, crop=made.crop)
