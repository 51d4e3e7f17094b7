"""One function over many items, in processes, in order."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

import torch

from crac.errors import InputError, check_number

__all__ = ["Workers", "leave_with_parent"]

Item = TypeVar("Item")
Result = TypeVar("Result")


class Workers:
    """A number of processes that serve several rounds of work, or this process where it is 1; a context manager."""

    def __init__(self, jobs: int) -> None:
        check_number("jobs", jobs, least=1, whole=True)
        # Spawned, not forked: forking a process in which torch has started threads may hang.
        context = multiprocessing.get_context("spawn")
        self._pool = ProcessPoolExecutor(jobs, mp_context=context, initializer=_start) if jobs > 1 else None

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
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
    """Make a worker leave Ctrl-C to its parent, use one core, and end when its parent is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    threading.Thread(target=leave_with_parent, daemon=True).start()


def leave_with_parent() -> None:
    """End this process when its parent ends; to be run in a thread."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
