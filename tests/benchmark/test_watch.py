import time
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from crac.benchmark.job import Folder
from crac.benchmark.watch import Watch
from crac.jobs import Outcome


class Time:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Time:
    made = Time()
    monkeypatch.setattr(time, "monotonic", made)
    return made


def test_no_run_begins_that_would_pass_the_limit(tiny_suite: Any, tmp_path: Path, clock: Time) -> None:
    jobs = tiny_suite(seeds=[0, 1, 2]).jobs({"phantom": tmp_path})
    watch = Watch(jobs, Folder(tmp_path), limit=60)
    queue = watch.admitted()
    assert next(queue).name == "phantom.unet.ce.0"
    clock.now += 20
    watch.see(Outcome("phantom.unet.ce.0", 20))
    assert next(queue).name == "phantom.unet.crac-released.0"
    clock.now += 15
    watch.see(Outcome("phantom.unet.crac-released.0", 15))
    assert next(queue).name == "phantom.unet.ce.1"  # took 20 before, 25 are left
    clock.now += 20
    assert not list(queue)


def test_the_table_shows_what_runs_what_is_done_and_the_time_left(
    tiny_suite: Any, tmp_path: Path, clock: Time, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs = tiny_suite(seeds=[0, 1]).jobs({"phantom": tmp_path})
    watch = Watch(jobs, Folder(tmp_path))
    assert watch.headline() == "0 of 4 runs done"
    for job in jobs[:2]:
        watch.see(job)
        clock.now += 40
        watch.see(Outcome(job.name, 40.0))
    assert "phantom.unet.ce.0 done in 0:00:40; 1 of 4 runs done, about 0:02:00 left" in capsys.readouterr().err
    watch.see(jobs[2])
    clock.now += 10
    assert watch.headline() == "2 of 4 runs done, 1 running, about 0:01:10 left"
    folder = tmp_path / "runs" / jobs[2].name
    folder.mkdir(parents=True)
    (folder / "metrics.csv").write_text("epoch,dice\n1,0.5\n")
    watch.see(Outcome(jobs[3].name, 1.0, "no memory"))
    console = Console(width=100, record=True, file=(tmp_path / "shown").open("w"))
    console.print(watch.table())
    shown = console.export_text()
    assert "2 of 4 runs done, 1 running, 1 broken" in shown
    ce, ours = (
        next(line for line in shown.splitlines() if f" {label} " in line) for label in ("CE", "CRaC (released)")
    )
    assert "done" in ce
    assert "epoch 1/1, 0:00:10" in ce
    assert "done" in ours
    assert "broken" in ours
    assert watch.problems == {jobs[3].name: "no memory"}


def test_workers_share_the_rest(tiny_suite: Any, tmp_path: Path, clock: Time) -> None:
    jobs = tiny_suite(seeds=[0, 1]).jobs({"phantom": tmp_path})
    watch = Watch(jobs, Folder(tmp_path), workers=3)
    watch.see(Outcome(jobs[0].name, 60.0))
    assert watch.headline().endswith("about 0:01:00 left")
