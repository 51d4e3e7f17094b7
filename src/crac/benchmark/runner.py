"""Run a suite: what is finished is kept, what is broken is named, the rest is done, and people see how it goes."""

import contextlib
import fnmatch
import itertools
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from crac.benchmark.job import Folder, do_job
from crac.benchmark.results import CellResult, merge_results
from crac.benchmark.suite import Cell, Job, Suite
from crac.data import Split, Store, phantom, prepare
from crac.errors import InputError, ProblemsError, check_number, require
from crac.files import remove_folder, remove_partials
from crac.jobs import Outcome, run_jobs
from crac.progress import duration
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
    merge: Sequence[str | Path] = (),
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
        merge: Folders of results of the same suite to take over first; where one was run with other settings, none is.
    """
    if jobs is not None:
        check_number("jobs", jobs, least=1, whole=True)
    folder = Folder(Path(out).absolute())
    stores = {name: (data.store or folder.data(name)).absolute() for name, data in suite.datasets.items()}
    chosen = _choose(suite.jobs(stores), only)
    taken = merge_results(merge, folder.path / "results") if merge else []
    try:
        _refuse_other_settings(chosen, folder)
    except InputError:
        for path in taken:  # else no later call could use the folder
            path.unlink()
        raise
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
            kept = CellResult.load(folder.result(cell))
            own = TrainConfig.written({"data": job.config.data, **kept.settings}).model_dump(mode="json")
            problems += [
                f"{cell.name} was run with {name} {own.get(name)!r}, the suite says {value!r}"
                for name, value in job.settings.items()
                if own.get(name) != value and not (value is None and name in PLANNED)
            ]
            ways = ("calibrator", "mirror", *(["fitted_on"] if cell.calibrator else []))
            problems += [
                f"{cell.name} was measured with {name} {before!r}, the suite says {now!r}"
                for name, before, now in ((name, getattr(kept.cell, name), getattr(cell, name)) for name in ways)
                if before != now
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


class Watch:
    """Follows the jobs of a benchmark and begins none that would pass the time limit.

    Args:
        jobs: All jobs, in their order.
        folder: Folder of the benchmark: its results tell what is done and how long it took.
        workers: Jobs at a time.
        limit: Seconds from now after which nothing is begun, nor what would take longer; None for no limit.

    Attributes:
        state: Name of a job -> ``waiting``, ``running``, ``done``, ``broken`` or ``stopped``.
        problems: Name of a broken job -> what went wrong.
    """

    def __init__(self, jobs: Sequence[Job], folder: Folder, workers: int = 1, limit: float | None = None) -> None:
        self.jobs = {job.name: job for job in jobs}
        self.folder, self.workers = folder, workers
        self.end = None if limit is None else time.monotonic() + limit
        self.state = {job.name: "done" if folder.finished(job) else "waiting" for job in jobs}
        self.problems: dict[str, str] = {}
        self.began: dict[str, float] = {}
        self.took: dict[str, float] = {}
        self.live = False
        for job in jobs:
            if known := [CellResult.load(path).seconds for path in map(folder.result, job.cells) if path.exists()]:
                tests = [seconds["evaluation"] for seconds in known]
                self.took[job.name] = known[0]["training"] + sum(tests) / len(tests) * len(job.cells)

    def named(self, *states: str) -> list[str]:
        """Return the names of the jobs in these states."""
        return [name for name, state in self.state.items() if state in states]

    def admitted(self) -> Iterator[Job]:
        """Yield the waiting jobs, until one would pass the limit."""
        for name in self.named("waiting"):
            if self.end is not None and time.monotonic() + self._estimate(name) > self.end:
                return
            yield self.jobs[name]

    def see(self, event: Job | Outcome) -> None:
        """Take note of a job that has begun, or of how one has ended."""
        if isinstance(event, Job):
            self.state[event.name] = "running"
            self.began[event.name] = time.monotonic()
            return
        self.state[event.job] = "broken" if event.problem else "stopped" if event.stopped else "done"
        if event.problem:
            self.problems[event.job] = event.problem
        else:
            self.took[event.job] = max(event.seconds, self.took.get(event.job, 0.0))
        if not self.live:
            problem = f": {event.problem}" if event.problem else ""
            line = f"{event.job} {self.state[event.job]} in {duration(event.seconds)}{problem}; {self.headline()}"
            print(line, file=sys.stderr, flush=True)

    @contextlib.contextmanager
    def shown(self) -> Iterator[None]:
        """Show a live table on a terminal; elsewhere a line per event, and one before and after them all."""
        console = require("rich.console").Console(stderr=True)
        self.live = console.is_terminal
        if self.live:
            live = require("rich.live").Live
            with live(get_renderable=self.table, console=console, refresh_per_second=2, redirect_stdout=False,
                      redirect_stderr=False):  # fmt: skip
                yield
            return
        print(self.headline(), file=sys.stderr, flush=True)
        try:
            yield
        finally:
            print(self.headline(), file=sys.stderr, flush=True)

    def headline(self) -> str:
        """Return the whole in one line."""
        count = Counter(self.state.values())
        parts = [f"{count['done']} of {len(self.state)} runs done"]
        parts += [f"{count[state]} {state}" for state in ("running", "broken", "stopped") if count[state]]
        if self.took and (rest := self.named("waiting", "running")):
            now = time.monotonic()
            left = [max(0.0, self._estimate(name) - (now - self.began.get(name, now))) for name in rest]
            parts.append(f"about {duration(sum(left) / self.workers)} left")
        return ", ".join(parts)

    def table(self) -> Any:
        """Return one row per data set, backbone and method, with the seeds side by side."""
        table = require("rich.table").Table(title=self.headline(), title_justify="left")
        runs = list(dict.fromkeys(job.cells[0].run for job in self.jobs.values()))
        for heading in ("data set", "backbone", "method", *(f"seed {run}" for run in runs)):
            table.add_column(heading)
        rows: dict[tuple[str, str, str], dict[int | str, str]] = {}
        for job in self.jobs.values():
            cell = job.cells[0]
            method = f"{cell.label}, {cell.objective}" if cell.objective else cell.label
            rows.setdefault((cell.dataset, cell.backbone, method), {})[cell.run] = self._describe(job)
        for key, states in rows.items():
            table.add_row(*key, *(states.get(run, "") for run in runs))
        return table

    def _describe(self, job: Job) -> str:
        if self.state[job.name] != "running":
            return self.state[job.name]
        try:
            lines = (self.folder.run(job) / "metrics.csv").read_text(encoding="utf-8").count("\n")
        except OSError:
            lines = 1
        return f"epoch {max(0, lines - 1)}/{job.config.epochs}, {duration(time.monotonic() - self.began[job.name])}"

    def _estimate(self, name: str) -> float:
        """Return the seconds of the longest of the last runs of the same method, or else of any, on the same data.

        Only the last, since the first ones compile.
        """
        own, cells = self.jobs[name].cells[0], {other: self.jobs[other].cells[0] for other in self.took}
        alike = [o for o, cell in cells.items() if (cell.dataset, cell.backbone) == (own.dataset, own.backbone)]
        same = [other for other in alike if cells[other].method == own.method]
        return max((self.took[other] for other in (same or alike)[-2 * self.workers :]), default=0.0)
