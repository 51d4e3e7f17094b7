"""The state of a running benchmark: what is done, how long the rest takes, and what people see of it."""

import contextlib
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from crac.benchmark.job import Folder
from crac.benchmark.results import CellResult
from crac.benchmark.suite import Job
from crac.errors import require
from crac.jobs import Outcome
from crac.progress import duration


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
