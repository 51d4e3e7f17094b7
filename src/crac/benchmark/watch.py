"""What people see of a running benchmark: a live table on a terminal, a line per event elsewhere."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from crac.benchmark.cell import Folder, Job
from crac.benchmark.work import Outcome
from crac.errors import require

__all__ = ["Watch", "duration"]


class Watch:
    """Follows the jobs of a benchmark.

    Args:
        jobs: All of the suite, in their order.
        finished: Names of those that were done before.
        folder: Of the benchmark; running jobs' epochs are read there.
        workers: Jobs at a time.
    """

    def __init__(self, jobs: Sequence[Job], finished: set[str], folder: Folder, workers: int) -> None:
        self.jobs = {job.name: job for job in jobs}
        self.folder = folder
        self.workers = workers
        self.state = {name: "done" if name in finished else "waiting" for name in self.jobs}
        self.began: dict[str, float] = {}
        self.took: list[float] = []
        self._live: Any = None

    def __enter__(self) -> Self:
        console = require("rich.console").Console(stderr=True)
        if console.is_terminal:
            live = require("rich.live").Live
            self._live = live(
                get_renderable=self.table, console=console, refresh_per_second=2, redirect_stdout=False,
                redirect_stderr=False,
            )  # fmt: skip
            self._live.start()
        else:
            self._say(self.headline())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()
        else:
            self._say(self.headline())

    def started(self, job: Job) -> None:
        """A job has begun."""
        self.state[job.name] = "running"
        self.began[job.name] = time.monotonic()

    def ended(self, outcome: Outcome) -> None:
        """A job has ended."""
        state = "broken" if outcome.problem else "stopped" if outcome.stopped else "done"
        self.state[outcome.job] = state
        if state == "done":
            self.took.append(outcome.seconds)
        if self._live is None:
            problem = f": {outcome.problem}" if outcome.problem else ""
            self._say(f"{outcome.job} {state} in {duration(outcome.seconds)}{problem}; {self.headline()}")

    def left(self) -> float | None:
        """Seconds until the end, None as long as nothing is known."""
        if not self.took:
            return None
        mean = sum(self.took) / len(self.took)
        now = time.monotonic()
        running = [max(0.0, mean - (now - self.began[name])) for name in self._in("running")]
        return (sum(running) + mean * len(self._in("waiting"))) / self.workers

    def headline(self) -> str:
        """The whole in one line."""
        count = Counter(self.state.values())
        parts = [f"{count['done']} of {len(self.state)} runs done"]
        parts += [f"{count[state]} {state}" for state in ("running", "broken", "stopped") if count[state]]
        left = self.left()
        if left is not None and count["done"] < len(self.state):
            parts.append(f"about {duration(left)} left")
        return ", ".join(parts)

    def table(self) -> Any:
        """One row per data set, backbone and method; the seeds side by side."""
        table = require("rich.table").Table(title=self.headline(), title_justify="left")
        seeds = sorted({job.config.seed for job in self.jobs.values()})
        for heading in ("data set", "backbone", "method", *(f"seed {seed}" for seed in seeds)):
            table.add_column(heading)
        rows: dict[tuple[str, str, str], dict[int, str]] = {}
        for job in self.jobs.values():
            cell = job.cells[0]
            rows.setdefault((cell.dataset, cell.backbone, cell.label), {})[cell.seed] = self._describe(job)
        for key, states in rows.items():
            table.add_row(*key, *(states.get(seed, "") for seed in seeds))
        return table

    def _describe(self, job: Job) -> str:
        state = self.state[job.name]
        if state != "running":
            return state
        try:
            lines = (self.folder.run(job) / "metrics.csv").read_text(encoding="utf-8").count("\n")
        except OSError:
            lines = 1
        passed = duration(time.monotonic() - self.began[job.name])
        return f"epoch {max(0, lines - 1)}/{job.config.epochs}, {passed}"

    def _in(self, state: str) -> list[str]:
        return [name for name, value in self.state.items() if value == state]

    @staticmethod
    def _say(line: str) -> None:
        print(line, file=sys.stderr, flush=True)


def duration(seconds: float) -> str:
    """Seconds for people."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02d} min"
