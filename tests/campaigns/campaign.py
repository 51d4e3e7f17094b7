"""What the campaigns share: trials that follow from a seed and their number, and counts that add up over several calls.

    PYTHONPATH=.:tests python -m tests.campaigns.bad_input --count 1000     goes on where the last call ended
    PYTHONPATH=.:tests python -m tests.campaigns.kill --count 1000 --jobs 8    eight trials at a time

Every trial draws from its own generator, so that a failing one can be repeated alone (``--only NUMBER``).
"""

import argparse
import importlib.metadata
import itertools
import json
import multiprocessing
import os
import platform
import time
import traceback
from collections import Counter, deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

RESULTS = Path(__file__).parent / "results"
SEED = 20
Trial = Callable[[np.random.Generator, int], str]
"""Takes its random numbers and its number, returns what kind of trial it was, and raises where something is wrong."""


class FailureError(AssertionError):
    """A trial that found a defect."""


def run_trials(trial: Trial, first: int, count: int, seed: int = SEED) -> tuple[Counter[str], dict[int, str]]:
    """Do ``count`` trials; return how many there were of each kind, and the defects by number of the trial."""
    kinds: Counter[str] = Counter()
    defects: dict[int, str] = {}
    for number in range(first, first + count):
        try:
            kinds[trial(np.random.default_rng((seed, number)), number)] += 1
        except Exception:  # whatever it is, it is a finding
            defects[number] = traceback.format_exc()
    return kinds, defects


Batch = tuple[int, Counter[str], dict[int, str], float]
"""Number of trials, how many there were of each kind, the defects, and the seconds it took."""


def main(name: str, trial: Trial, about: str, step: int = 50) -> int:
    """Go on with a campaign from the command line; results gather in ``results/NAME.json``."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--count", type=int, default=100, help="trials to add")
    parser.add_argument("--only", type=int, help="repeat one trial and record nothing")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin nothing after this time")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--out", type=Path, default=RESULTS / f"{name}.json", help="file to go on with")
    args = parser.parse_args()
    if args.only is not None:
        _, defects = run_trials(trial, args.only, 1)
        print(*defects.values() or ["nothing wrong"], sep="\n")
        return len(defects)
    empty = {"campaign": name, "seed": SEED, "trials": 0, "kinds": {}, "defects": 0, "seconds": 0.0}
    record: dict[str, Any] = json.loads(args.out.read_text()) if args.out.is_file() else empty
    found = 0
    starts = range(record["trials"], record["trials"] + args.count, step)
    ends = [*starts[1:], record["trials"] + args.count]
    for done, kinds, defects, seconds in _batches(trial, list(zip(starts, ends, strict=True)), args.jobs, args.seconds):
        for number, text in defects.items():
            print(f"trial {number}:\n{text}", flush=True)
        found += len(defects)
        record["trials"] += done
        record["defects"] += len(defects)
        record["kinds"] = dict(sorted((Counter(record["kinds"]) + kinds).items()))
        record["seconds"] = round(record["seconds"] + seconds, 1)
        record["versions"] = _versions()
        args.out.parent.mkdir(exist_ok=True)
        args.out.write_text(json.dumps(record, indent=1) + "\n")
    print(f"{name}: {record['trials']} trials in all, {found} defects in this call")
    return int(found > 0)


def _batch(trial: Trial, first: int, end: int) -> Batch:
    start = time.monotonic()
    return end - first, *run_trials(trial, first, end - first), time.monotonic() - start


def _batches(trial: Trial, bounds: list[tuple[int, int]], jobs: int, seconds: float) -> Iterator[Batch]:
    """Yield the batches in their order; none is begun after ``seconds``."""
    last = time.monotonic() + seconds
    wanted = itertools.takewhile(lambda _: time.monotonic() < last, bounds)
    if jobs == 1:
        yield from (_batch(trial, *pair) for pair in wanted)
        return
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        waiting: deque[Future[Batch]] = deque()
        for pair in wanted:
            waiting.append(pool.submit(_batch, trial, *pair))
            if len(waiting) > jobs:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _versions() -> dict[str, str]:
    packages = ("torch", "numpy", "nibabel", "safetensors", "pydantic")
    found = {package: importlib.metadata.version(package) for package in packages}
    return {"python": platform.python_version(), "cores": str(os.cpu_count()), **found}
