"""What the campaigns share: trials that follow from a seed and their number, and counts that add up over several calls.

    PYTHONPATH=.:tests python -m tests.campaigns.bad_input --count 1000     goes on where the last call ended

Every trial draws from its own generator, so that a failing one can be repeated alone (``--only NUMBER``).
"""

import argparse
import importlib.metadata
import json
import os
import platform
import time
import traceback
from collections import Counter
from collections.abc import Callable
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


def main(name: str, trial: Trial, about: str, step: int = 50) -> int:
    """Go on with a campaign from the command line; results gather in ``results/NAME.json``."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--count", type=int, default=100, help="trials to add")
    parser.add_argument("--only", type=int, help="repeat one trial and record nothing")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after this time")
    args = parser.parse_args()
    if args.only is not None:
        _, defects = run_trials(trial, args.only, 1)
        print(*defects.values() or ["nothing wrong"], sep="\n")
        return len(defects)
    path = RESULTS / f"{name}.json"
    empty = {"campaign": name, "seed": SEED, "trials": 0, "kinds": {}, "defects": 0, "seconds": 0.0}
    record: dict[str, Any] = json.loads(path.read_text()) if path.is_file() else empty
    found = 0
    began = time.monotonic()
    left = args.count
    while left > 0 and time.monotonic() - began < args.seconds:
        start = time.monotonic()
        kinds, defects = run_trials(trial, record["trials"], min(step, left))
        for number, text in defects.items():
            print(f"trial {number}:\n{text}", flush=True)
        found += len(defects)
        record["trials"] += min(step, left)
        record["defects"] += len(defects)
        record["kinds"] = dict(sorted((Counter(record["kinds"]) + kinds).items()))
        record["seconds"] = round(record["seconds"] + time.monotonic() - start, 1)
        record["versions"] = _versions()
        RESULTS.mkdir(exist_ok=True)
        path.write_text(json.dumps(record, indent=1) + "\n")
        left -= step
    print(f"{name}: {record['trials']} trials in all, {found} defects in this call")
    return int(found > 0)


def _versions() -> dict[str, str]:
    packages = ("torch", "numpy", "nibabel", "safetensors", "pydantic")
    found = {package: importlib.metadata.version(package) for package in packages}
    return {"python": platform.python_version(), "cores": str(os.cpu_count()), **found}
