"""Jobs one after the other and in processes: each begins, and each ends with an outcome."""

import os
import signal
from pathlib import Path
from typing import NamedTuple

from crac.jobs import Outcome, run_jobs


class Named(NamedTuple):
    name: str
    folder: Path


def note(job: Named) -> Outcome:
    """Leave a file, or die where the name says so."""
    if job.name == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    (job.folder / job.name).write_text(str(os.getpid()))
    return Outcome(job.name, 1.0)


def test_a_process_that_dies_takes_no_other_along(tmp_path: Path) -> None:
    jobs = [Named(name, tmp_path) for name in ("a", "dies", "b", "c")]
    events = list(run_jobs(iter(jobs), note, 2, None))
    assert [event for event in events if isinstance(event, Named)] == jobs
    outcomes = {event.job: event.problem for event in events if isinstance(event, Outcome)}
    assert outcomes == dict.fromkeys("abc") | {"dies": "its process was killed, most likely for want of memory"}
    assert str(os.getpid()) not in {(tmp_path / name).read_text() for name in "abc"}


def test_one_at_a_time_they_are_done_here_and_taken_when_there_is_a_place(tmp_path: Path) -> None:
    taken = []

    def jobs():
        for name in "ab":
            taken.append(name)
            yield Named(name, tmp_path)

    events = run_jobs(jobs(), note, 1, None)
    assert next(events).name == "a"
    assert next(events) == Outcome("a", 1.0)
    assert taken == ["a"]
    assert len(list(events)) == 2
    assert (tmp_path / "b").read_text() == str(os.getpid())
