"""Work in several processes and threads."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch

from crac.errors import InputError
from crac.parallel import Workers, in_threads


def kill(_: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_killed_worker_is_called_that() -> None:
    with Workers(2) as workers, pytest.raises(InputError, match="a worker process was killed, most likely for want"):
        list(workers.map(kill, [1, 2]))


def test_a_script_without_a_guard_is_told_so(tmp_path: Path) -> None:
    """Its workers import it, come to the same call and end; that is not for want of memory."""
    script = tmp_path / "script.py"
    script.write_text(
        "from crac.parallel import Workers\nwith Workers(2) as w:\n    print(list(w.map(abs, [-1, -2])))\n"
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 1
    assert "InputError: no worker process could start; where a script asks for more than one job" in done.stderr
    assert "bootstrapping phase" not in done.stderr
    guarded = script.read_text().replace("with Workers", "if __name__ == '__main__':\n  with Workers")
    script.write_text(guarded)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout.strip() == "[1, 2]", done.stderr


def test_threads_keep_the_order_and_let_torch_use_one_core_each() -> None:
    before, met = torch.get_num_threads(), threading.Barrier(3, timeout=60)

    def square(number: int) -> tuple[int, int]:
        met.wait()  # three at a time, or this fails
        return number * number, torch.get_num_threads()

    assert list(in_threads(square, range(9), 3)) == [(number * number, 1) for number in range(9)]
    assert torch.get_num_threads() == before
    assert list(in_threads(abs, (-1, 2), 1)) == [1, 2]


def test_an_error_in_a_thread_ends_the_others() -> None:
    seen: list[int] = []

    def fail(number: int) -> None:
        seen.append(number)
        raise InputError("no")

    with pytest.raises(InputError, match="no"):
        list(in_threads(fail, range(1000), 2))
    assert len(seen) < 10


def test_threads_do_not_set_how_many_cores_torch_uses(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is set before they start, by the thread that starts them, and never where that is not the main one."""
    callers: list[threading.Thread] = []
    set_num_threads = torch.set_num_threads

    def watched(number: int) -> None:
        callers.append(threading.current_thread())
        set_num_threads(number)

    monkeypatch.setattr(torch, "set_num_threads", watched)
    assert list(in_threads(lambda _: torch.get_num_threads(), range(5), 2, cores=3)) == [3] * 5
    assert callers == [threading.main_thread()] * 2
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.extend(in_threads(lambda _: threading.get_ident(), range(3), 2)))
    thread.start()
    thread.join()
    assert found == [thread.ident] * 3
    assert len(callers) == 2
