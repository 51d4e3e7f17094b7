"""One function over many items, in order: in threads or processes of this machine, or on a Ray cluster."""

import contextlib
import multiprocessing
import os
import pickle
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import lru_cache, partial
from typing import Any, Self, TypeVar

import torch

from crac.errors import InputError, check_number, require

UNGUARDED = (
    "no worker process could start; where a script asks for more than one job, the call must stand under "
    "if __name__ == '__main__':, for every process imports the script"
)

Item = TypeVar("Item")
Result = TypeVar("Result")


@contextlib.contextmanager
def ray_cluster(address: str, workers: int | None = None) -> Iterator[Any]:
    """Connect to a Ray cluster and give the module ``ray``; a connection that was there before stays.

    The address ``local`` starts one on this machine, with as many processors as ``workers``, by default all.
    """
    ray = require("ray")
    own = not ray.is_initialized()
    if own:
        local: dict[str, Any] = {"num_cpus": workers} if address == "local" and workers else {}
        ray.init(address=address, include_dashboard=False, log_to_driver=False, logging_level="error", **local)
    try:
        yield ray
    finally:
        if own:
            ray.shutdown()


class Workers:
    """Processes that serve several rounds of work; a context manager.

    Args:
        jobs: How many; 1 works in this process.
        ray: Address of a Ray cluster that does the work instead, ``local`` to start one here with ``jobs`` workers.
    """

    def __init__(self, jobs: int, ray: str | None = None) -> None:
        check_number("jobs", jobs, least=1, whole=True)
        self._stack = contextlib.ExitStack()
        self._ray = None if ray is None else self._stack.enter_context(ray_cluster(ray, jobs))
        self._pool: ProcessPoolExecutor | None = None
        if ray is None and jobs > 1:
            leave_unguarded_script()
            # Spawned, not forked: forking a process in which torch has started threads may hang.
            context = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(jobs, mp_context=context, initializer=_start)
            self._first = self._pool.submit(os.getpid)
            self._stack.callback(self._pool.shutdown, wait=True, cancel_futures=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Drop what has not begun and wait for what has."""
        self._stack.close()

    def map(self, do: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
        """Yield ``do(item)`` for each item, in the order of ``items``."""
        if self._ray is not None:
            yield from self._map_on_ray(do, items)
            return
        if self._pool is None:
            yield from map(do, items)
            return
        # Pickled once, and here: a pool that fails to pickle its work hangs.
        pickled = partial(_call_pickled, pickle.dumps(do))
        try:
            yield from self._pool.map(pickled, items)
        except BrokenProcessPool as error:
            if self._first.exception() is not None:
                raise InputError(UNGUARDED) from error
            raise InputError("a worker process was killed, most likely for want of memory; use fewer jobs") from error

    def _map_on_ray(self, do: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
        ray: Any = self._ray
        task = ray.remote(max_retries=0)(_call)
        shared = ray.put(do)  # once, and not with every item
        most = 2 * int(ray.cluster_resources()["CPU"])  # as many results may wait for their turn
        waiting: deque[Any] = deque()
        try:
            for item in items:
                waiting.append(task.remote(shared, item))
                if len(waiting) > most:
                    yield ray.get(waiting.popleft())
            while waiting:
                yield ray.get(waiting.popleft())
        except ray.exceptions.RayTaskError as error:
            raise (error.cause or error) from None
        except ray.exceptions.RayError as error:
            raise InputError(f"a worker of the Ray cluster ended: {str(error).strip().splitlines()[0]}") from error


def in_threads(do: Callable[[Item], Result], items: Iterable[Item], threads: int, cores: int = 1) -> Iterator[Result]:
    """Yield ``do(item)`` for each item, in their order, from threads of which each lets torch use so many cores.

    Items are taken by the thread that called. If that is not the main one it does the work, too: whoever started it
    has others to keep the cores busy.
    """
    if threads == 1 or threading.current_thread() is not threading.main_thread():
        yield from map(do, items)
        return
    before = torch.get_num_threads()
    waiting: deque[Future[Result]] = deque()
    pool = ThreadPoolExecutor(threads)
    torch.set_num_threads(cores)  # what threads started from now on begin with
    try:
        for item in items:
            waiting.append(pool.submit(do, item))
            if len(waiting) > threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(before)


def leave_unguarded_script() -> None:
    """End a worker process that, importing its parent's script, has come to the call that started it."""
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise SystemExit(1)  # without a word: the parent says what is wrong


_unpickled = lru_cache(maxsize=1)(pickle.loads)


def _call_pickled(work: bytes, item: Any) -> Any:
    return _unpickled(work)(item)


def _call(do: Callable[[Item], Result], item: Item) -> Result:
    return do(item)


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
