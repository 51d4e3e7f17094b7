"""Jobs one after the other, in local processes, or on a Ray cluster: three ways to turn jobs into events.

Each takes jobs from an iterator only when it has a place for one, so that the iterator may end early, and yields
:class:`Started` and :class:`~crac.benchmark.work.Outcome` as they come.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple

import torch

from crac.benchmark.cell import Folder, Job
from crac.benchmark.work import Outcome, do_job
from crac.errors import require
from crac.parallel import leave_with_parent

__all__ = ["Started", "in_processes", "in_turn", "on_ray"]


class Started(NamedTuple):
    """A job has begun."""

    job: Job


Events = Iterator[Started | Outcome]


def in_turn(jobs: Iterator[Job], folder: Folder) -> Events:
    """In this process."""
    for job in jobs:
        yield Started(job)
        yield do_job(job, folder)


class Worker:
    """A process that does jobs, on one device.

    Args:
        folder: Of the benchmark.
        number: Which of the workers it is.
        of: How many there are.
    """

    def __init__(self, folder: Folder, number: int, of: int) -> None:
        devices = _devices()
        device = devices[number % len(devices)] if devices else None
        # Spawned, not forked: neither torch's threads nor CUDA survive a fork.
        context = multiprocessing.get_context("spawn")
        self.number = number
        self.job: Job | None = None
        self.pipe: Connection
        self.pipe, theirs = context.Pipe()
        self.process: BaseProcess = context.Process(target=_serve, args=(theirs, folder, device, of), daemon=True)
        self.process.start()
        theirs.close()

    def give(self, job: Job) -> None:
        """Let it begin."""
        self.job = job
        self.pipe.send(job)

    def take(self) -> Outcome:
        """What came out, also where the process is no more."""
        assert self.job is not None
        job, self.job = self.job, None
        try:
            outcome: Outcome = self.pipe.recv()
        except (EOFError, OSError):
            self.process.join()
            reason = f"its process ended with {_exit(self.process.exitcode)}, most likely for want of memory"
            return Outcome(job.name, 0.0, reason)
        return outcome

    def close(self) -> None:
        """Let a running job save itself, and end."""
        if self.job is not None and self.process.pid is not None and self.process.is_alive():
            os.kill(self.process.pid, signal.SIGTERM)
        self.pipe.close()
        self.process.join()


def in_processes(jobs: Iterator[Job], folder: Folder, workers: int) -> Events:
    """In several processes on this machine, which share its GPUs; one that dies is replaced."""
    crew: list[Worker] = []
    try:
        # The next free number is also the device: a replacement takes its predecessor's.
        for number, job in zip(range(workers), jobs, strict=False):
            crew.append(Worker(folder, number, workers))
            crew[-1].give(job)
            yield Started(job)
        while busy := [worker for worker in crew if worker.job is not None]:
            ready = wait([worker.pipe for worker in busy])
            for worker in [worker for worker in busy if worker.pipe in ready]:
                yield worker.take()
                job_or_none = next(jobs, None)
                if job_or_none is None:
                    continue
                if not worker.process.is_alive():
                    crew.remove(worker)
                    worker = Worker(folder, worker.number, workers)
                    crew.append(worker)
                worker.give(job_or_none)
                yield Started(job_or_none)
    finally:
        for worker in crew:
            worker.close()


def on_ray(jobs: Iterator[Job], folder: Folder, address: str, workers: int | None) -> Events:
    """On a Ray cluster whose machines share the benchmark's folder and its stores.

    Args:
        jobs: What to do.
        folder: Of the benchmark.
        address: Of a running cluster, or ``local`` to start one on this machine.
        workers: Jobs at a time; by default as many as the cluster has GPUs, or else processors.
    """
    ray = require("ray")
    own = not ray.is_initialized()
    if own:
        local: dict[str, Any] = {"num_cpus": workers} if address == "local" and workers else {}
        ray.init(address=address, include_dashboard=False, log_to_driver=False, logging_level="error", **local)
    try:
        resources = ray.cluster_resources()
        gpus = int(resources.get("GPU", 0))
        places = workers or gpus or int(resources["CPU"])
        need = {"num_cpus": 1, "num_gpus": min(1.0, gpus / places)}
        remote = ray.remote(max_retries=0, **need)(do_job)
        running: dict[Any, Job] = {}
        while True:
            while len(running) < places and (job := next(jobs, None)) is not None:
                running[remote.remote(job, folder)] = job
                yield Started(job)
            if not running:
                return
            (ready,), _ = ray.wait(list(running))
            job = running.pop(ready)
            try:
                yield ray.get(ready)
            except ray.exceptions.RayError as error:
                reason = str(getattr(error, "cause", None) or error).strip().splitlines()[0]
                yield Outcome(job.name, 0.0, f"its worker ended: {reason}")
    finally:
        if own:
            ray.shutdown()


def _serve(pipe: Connection, folder: Folder, device: str | None, of: int) -> None:
    """Do jobs until the pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's, which then asks for an end
    threading.Thread(target=leave_with_parent, daemon=True).start()
    if device is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = device  # before anything here asks CUDA what there is
    elif of > 1:
        torch.set_num_threads(max(1, torch.get_num_threads() // of))
    while True:
        try:
            job = pipe.recv()
        except EOFError:
            return
        outcome = do_job(job, folder)
        try:
            pipe.send(outcome)
        except (BrokenPipeError, OSError):
            return
        if outcome.stopped:
            return


def _devices() -> list[str]:
    """The GPUs this process may use, by the names CUDA knows them by."""
    if not torch.cuda.is_available():
        return []
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    return named.split(",") if named else [str(number) for number in range(torch.cuda.device_count())]


def _exit(code: int | None) -> str:
    if code is not None and code < 0:
        return signal.Signals(-code).name
    return f"code {code}"
