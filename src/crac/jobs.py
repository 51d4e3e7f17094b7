"""Jobs that may take hours: done one after the other, in processes, or on a Ray cluster.

Each way takes a job from an iterator only when it has a place for one, so that the iterator may end early, and yields
every job as it begins and its outcome as it ends.
"""

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import torch

from crac.errors import InputError
from crac.parallel import UNGUARDED, leave_unguarded_script, leave_with_parent, ray_cluster


@dataclass(frozen=True)
class Outcome:
    """How a job ended.

    Args:
        job: Its name.
        seconds: How long it took.
        problem: What went wrong, in one sentence; None if nothing did.
        stopped: Whether it was asked to stop and can go on later.
    """

    job: str
    seconds: float
    problem: str | None = None
    stopped: bool = False


class Named(Protocol):
    """A job: all that is asked of it is a name by which it is told from others."""

    @property
    def name(self) -> str:
        """The name of the job."""


Job = TypeVar("Job", bound=Named)
Do = Callable[[Job], Outcome]
"""Does a job; whatever goes wrong is in the outcome. It must be importable by name, or a ``partial`` of such a one."""


def run_jobs(jobs: Iterator[Job], do: Do[Job], workers: int | None, ray: str | None) -> Iterator[Job | Outcome]:
    """Do jobs and yield them as they begin, and their outcomes as they end.

    Args:
        jobs: Taken one by one.
        do: Does one.
        workers: Jobs at a time; more than one is done in processes, which share the GPUs. By default 1, on Ray as many
            as the cluster has GPUs or processors.
        ray: Address of a Ray cluster, ``local`` to start one.
    """
    if ray is not None:
        return on_ray(jobs, do, ray, workers)
    if workers is not None and workers > 1:
        return in_processes(jobs, do, workers)
    return in_turn(jobs, do)


def in_turn(jobs: Iterator[Job], do: Do[Job]) -> Iterator[Job | Outcome]:
    """Do jobs in this process."""
    for job in jobs:
        yield job
        yield do(job)


def in_processes(jobs: Iterator[Job], do: Do[Job], workers: int) -> Iterator[Job | Outcome]:
    """Do jobs in several processes on this machine, which share its GPUs; one that dies is replaced."""
    pools: dict[int, ProcessPoolExecutor] = {}  # of one process each, so that a dying one takes no other along
    pids: dict[int, Future[int]] = {}
    running: dict[Future[Outcome], tuple[int, Job]] = {}
    leave_unguarded_script()
    named = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(torch.cuda.device_count())))
    devices = named.split(",") if torch.cuda.is_available() else [None]

    def begin(number: int, job: Job) -> Job:
        if number not in pools:
            # Spawned, not forked: neither torch's threads nor CUDA survive a fork.
            context = multiprocessing.get_context("spawn")
            pools[number] = ProcessPoolExecutor(1, context, _start, (devices[number % len(devices)], workers))
            pids[number] = pools[number].submit(os.getpid)
        running[pools[number].submit(do, job)] = number, job
        return job

    try:
        for number, job in zip(range(workers), jobs, strict=False):
            yield begin(number, job)
        while running:
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                number, job = running.pop(future)
                try:
                    yield future.result()
                except BrokenProcessPool:
                    pools.pop(number).shutdown()
                    if pids[number].exception() is not None:
                        raise InputError(UNGUARDED) from None
                    yield Outcome(job.name, 0.0, "its process was killed, most likely for want of memory")
                if (following := next(jobs, None)) is not None:
                    yield begin(number, following)
    finally:
        for number, _ in running.values():  # asked to end, a training saves itself first
            with contextlib.suppress(ProcessLookupError, BrokenProcessPool):
                os.kill(pids[number].result(), signal.SIGTERM)
        for pool in pools.values():
            pool.shutdown(cancel_futures=True)


def _start(device: str | None, workers: int) -> None:
    """Prepare a process for its jobs: one device or a share of the cores; Ctrl-C is left to its parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=leave_with_parent, daemon=True).start()
    if device is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = device  # before anything here asks CUDA what there is
    else:
        torch.set_num_threads(max(1, torch.get_num_threads() // workers))


def on_ray(jobs: Iterator[Job], do: Do[Job], address: str, workers: int | None) -> Iterator[Job | Outcome]:
    """Do jobs on a Ray cluster whose machines share the folders that the jobs name."""
    with ray_cluster(address, workers) as ray:
        resources = ray.cluster_resources()
        gpus = int(resources.get("GPU", 0))
        places = workers or gpus or int(resources["CPU"])
        remote = ray.remote(max_retries=0, num_cpus=1, num_gpus=min(1.0, gpus / places))(_call)
        running: dict[Any, Job] = {}
        while True:
            while len(running) < places and (job := next(jobs, None)) is not None:
                running[remote.remote(do, job)] = job
                yield job
            if not running:
                return
            (ready,), _ = ray.wait(list(running))
            job = running.pop(ready)
            try:
                yield ray.get(ready)
            except ray.exceptions.RayError as error:
                reason = str(getattr(error, "cause", None) or error).strip().splitlines()[0]
                yield Outcome(job.name, 0.0, f"its worker ended: {reason}")


def _call(do: Do[Job], job: Job) -> Outcome:
    return do(job)
