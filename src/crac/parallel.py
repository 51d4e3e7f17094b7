"""One function over many items, in processes, in order."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from types import TracebackType
from typing import TypeVar

import torch

from crac.errors import InputError

__all__ = ["Workers", "leave_with_parent"]

Item = TypeVar("Item")
Result = TypeVar("Result")


class Workers:
    """Processes that serve several rounds of work; a context manager.

    Args:
        jobs: How many; 1 works in this process.
    """

    def __init__(self, jobs: int) -> None:
        if jobs < 1:
            raise InputError(f"jobs must be at least 1; got {jobs}")
        # Spawned, not forked: forking a process in which torch has started threads may hang.
        context = multiprocessing.get_context("spawn")
        self._pool = ProcessPoolExecutor(jobs, mp_context=context, initializer=_start) if jobs > 1 else None

    def __enter__(self) -> Workers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Drop what has not begun and wait for what has."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)

    def map(self, do: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
        """Yield ``do(item)`` for each item, in the order of ``items``."""
        try:
            yield from map(do, items) if self._pool is None else self._pool.map(do, items)
        except BrokenProcessPool as error:
            raise InputError("a worker process was killed, most likely for want of memory; use fewer jobs") from error


def _start() -> None:
    """A worker leaves Ctrl-C to its parent, its neighbours' cores alone, and does not outlive a killed parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    threading.Thread(target=leave_with_parent, daemon=True).start()


def leave_with_parent() -> None:
    """End this process when its parent ends; to be run in a thread."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
