"""Run a suite: what is finished is kept, what is broken is named, the rest is done.

Jobs are done one after the other, in processes, or on a Ray cluster. Each way takes a job from an iterator only when it
has a place for one, so that the iterator may end early, and yields every job as it begins and its outcome as it ends.
"""

import contextlib
import fnmatch
import itertools
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from crac.benchmark.job import Folder, Outcome, do_job
from crac.benchmark.results import CellResult
from crac.benchmark.suite import Cell, Job, Suite
from crac.benchmark.watch import Watch
from crac.data import Split, Store, phantom, prepare
from crac.errors import InputError, ProblemsError, check_number
from crac.parallel import UNGUARDED, leave_unguarded_script, leave_with_parent, ray_cluster
from crac.training.config import TrainConfig
from crac.training.engine import check_devices

Events = Iterator[Job | Outcome]


@dataclass(frozen=True)
class Summary:
    """How a benchmark stands after a call.

    Args:
        done: Names of the runs that are finished, now or before.
        broken: Name of a run -> why it failed.
        left: Names of the runs that were not begun or not finished.
    """

    done: list[str]
    broken: dict[str, str]
    left: list[str]


def run_benchmark(
    suite: Suite,
    out: str | Path,
    *,
    jobs: int | None = None,
    ray: str | None = None,
    only: Sequence[str] = (),
    time_limit: float | None = None,
) -> Summary:
    """Run what is not finished yet.

    Args:
        suite: What to compare.
        out: Folder of the benchmark; a second call with the same folder goes on.
        jobs: Runs at a time; more than one is done in processes, which share the GPUs. By default 1, on Ray as many
            as the cluster has GPUs or processors.
        ray: Address of a Ray cluster, ``local`` to start one.
        only: Names of methods, with ``*`` and ``?``; all by default.
        time_limit: Seconds after which no run is begun, nor one that would take longer than what is left.
    """
    if jobs is not None:
        check_number("jobs", jobs, least=1, whole=True)
    folder = Folder(Path(out).absolute())
    stores = {name: (data.store or folder.data(name)).absolute() for name, data in suite.datasets.items()}
    chosen = _choose(suite.jobs(stores), only)
    _refuse_other_settings(chosen, folder)
    for name in suite.datasets:
        _make_ready(suite, name, folder)
    watch = Watch(chosen, folder, jobs or 1, time_limit)
    if ray is None and watch.named("waiting"):
        try:
            check_devices(chosen[0].config)  # all jobs need the same
        except InputError as error:
            raise InputError(f"suite {suite.name}, training: {error}") from error
    if ray is not None:
        events = on_ray(watch.admitted(), folder, ray, jobs)
    elif jobs is not None and jobs > 1:
        events = in_processes(watch.admitted(), folder, jobs)
    else:
        events = in_turn(watch.admitted(), folder)
    with watch.shown():
        for event in events:
            watch.see(event)
            if isinstance(event, Outcome) and event.stopped:
                raise KeyboardInterrupt
    return Summary(watch.named("done"), watch.problems, watch.named("waiting"))


def in_turn(jobs: Iterator[Job], folder: Folder) -> Events:
    """Do jobs in this process."""
    for job in jobs:
        yield job
        yield do_job(job, folder)


def in_processes(jobs: Iterator[Job], folder: Folder, workers: int) -> Events:
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
        running[pools[number].submit(do_job, job, folder)] = number, job
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


def on_ray(jobs: Iterator[Job], folder: Folder, address: str, workers: int | None) -> Events:
    """Do jobs on a Ray cluster whose machines share the benchmark's folder and its stores."""
    with ray_cluster(address, workers) as ray:
        resources = ray.cluster_resources()
        gpus = int(resources.get("GPU", 0))
        places = workers or gpus or int(resources["CPU"])
        remote = ray.remote(max_retries=0, num_cpus=1, num_gpus=min(1.0, gpus / places))(do_job)
        running: dict[Any, Job] = {}
        while True:
            while len(running) < places and (job := next(jobs, None)) is not None:
                running[remote.remote(job, folder)] = job
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


def _choose(jobs: list[Job], only: Sequence[str]) -> list[Job]:
    """Return the jobs with a cell whose method matches; of each the matching cells and the training itself.

    What is measured on the networks of a row belongs to it.
    """

    def matches(cell: Cell) -> bool:
        names = (cell.method, cell.base)
        return not only or any(fnmatch.fnmatchcase(name, pattern) for pattern in only for name in names)

    chosen = [
        replace(job, cells=(job.cells[0], *filter(matches, job.cells[1:])))
        for job in jobs
        if any(map(matches, job.cells))
    ]
    if not chosen:
        names = dict.fromkeys(cell.method for job in jobs for cell in job.cells)
        raise InputError(f"only must match one of {', '.join(names)}; got {' '.join(only)}")
    return chosen


def _refuse_other_settings(jobs: Sequence[Job], folder: Folder) -> None:
    """Results of one folder must be comparable: the same cell with other settings belongs elsewhere."""
    problems = []
    for job in jobs:
        for cell in filter(lambda cell: folder.result(cell).exists(), job.cells):
            kept = CellResult.load(folder.result(cell)).settings
            own = TrainConfig.written({"data": job.config.data, **kept}).model_dump(mode="json")
            problems += [
                f"{cell.name} was run with {name} {own.get(name)!r}, the suite says {value!r}"
                for name, value in job.settings.items()
                if own.get(name) != value
            ]
    if problems:
        raise ProblemsError(f"{folder.path} holds results of other settings, choose another --out", problems)


def _make_ready(suite: Suite, name: str, folder: Folder) -> None:
    """Make a data set that is artificial, and refuse one that cannot be tested on before anything is trained."""
    dataset = suite.datasets[name]
    made = dataset.phantom
    if made is not None and not (folder.data(name) / "manifest.json").exists():
        draw, layout = {"cardiac": (phantom.cardiac, "acdc"), "abdominal": (phantom.abdominal, "flare")}[made.kind]
        raw = draw(folder.data(f"{name}-raw"), made.patients, made.seed, made.size, made.slices)
        prepare(layout, raw, folder.data(name), spacing=made.spacing, crop=made.crop)
    try:
        store = Store.open(dataset.store or folder.data(name))
    except InputError as error:
        raise InputError(f"data set {name}: {error} (another place: --data {name}=STORE)") from error
    file = suite.training.split
    seeds = suite.splits or [suite.training.split_seed]
    splits = [store.split(seed) for seed in seeds] if file is None else [Split.load(file, store.cases)]
    patients = len({case.patient for case in store.cases.values()})
    for split, part in itertools.product(splits, ("train", "validation", "test")):
        if not getattr(split, part):
            raise InputError(
                f"data set {name}: its {patients} patients leave the {part} part of the split empty; a benchmark needs "
                "patients to train, to validate and to test"
            )
    if not all(any(sum(store.cases[case].prepared_voxels[1:]) for case in split.test) for split in splits):
        raise InputError(
            f"data set {name}: no volume of the test part has a voxel labelled foreground, so nothing can be measured"
        )
