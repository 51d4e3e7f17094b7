"""How wide intervals of volumes are, before and after ``crac calibrate``: a real data set in nnU-Net's layout.

    python speed/volume_intervals.py Dataset004_Hippocampus --device cuda --jobs 3

Every seed draws its own 50 patients to train on, 70 to calibrate on and the others to test (of the hippocampus's 260),
and does what a user does: ``crac train``, then for each way of calibrating ``crac calibrate`` and ``crac guarantee``.
On the test patients it measures what ``crac evaluate`` writes as ``guarantees.csv``. Nothing is chosen by that.
Widths are compared patient by patient, with bootstrap intervals over patients.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import math
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from crac.cli import main as crac
from crac.data import Split, Store
from crac.evaluation.realised import realise
from crac.evaluation.run import RunCases
from crac.metrics import paired_bootstrap
from crac.models.guarantees import run_guarantees
from crac.models.model import Model
from crac.parallel import Workers
from measure import RESULTS, environment, save

CALIBRATIONS: dict[str, tuple[str, ...] | None] = {
    "none": None,
    "class_region": ("--method", "class_region"),
    "class_region, near foreground": ("--method", "class_region", "--mask", "band"),
    "class_region_affine": ("--method", "class_region_affine"),
}
SHARES = (50 / 260, 70 / 260, 140 / 260)
PREPARATION = ("--dims", 3)
COLUMNS = ("true", "estimate", "low", "high", "argmax")


def command(*words: object) -> str:
    """Run a command of crac and return what it printed; an error ends the script."""
    with contextlib.redirect_stdout(io.StringIO()) as said:
        code = crac([str(word) for word in words])
    if code:
        raise SystemExit(f"crac {words[0]} ended with {code}")
    return said.getvalue()


def volumes(run: Path, device: str) -> tuple[float, dict[str, dict[str, list[float]]]]:
    """What ``crac evaluate`` finds of guarantees: mean Dice, and class -> columns of ``guarantees.csv``, in mm3."""
    model = Model.load(run, device)
    found = run_guarantees(run, model)
    assert found is not None
    rows = realise(found, RunCases.of(run, model, "test", grid="native")).rows
    classes = {
        name: {end: [round(1000 * row[f"{end}_ml"], 1) for row in rows if row["class"] == name] for end in COLUMNS}
        for name in found.class_names[1:]
    }
    return float(np.mean([row["dice"] for row in rows])), classes


def summary(own: dict[str, list[float]], before: dict[str, list[float]]) -> dict[str, Any]:
    """Width, coverage and error of one class, and the change of the width against ``before``, patient by patient."""
    true, estimate, low, high, argmax = (np.array(own[end]) for end in COLUMNS)
    width, old = high - low, np.array(before["high"]) - np.array(before["low"])
    change = paired_bootstrap(width, old)
    return {
        "width": float(width.mean()),
        "change_percent": [100 * value / old.mean() for value in (change.estimate, change.low, change.high)],
        "covered": float(np.mean((low - 1e-6 <= true) & (true <= high + 1e-6))),
        "bias": float((estimate - true).mean()),
        "error": float(np.abs(estimate - true).mean()),
        "argmax_error": float(np.abs(argmax - true).mean()),
        "true": float(true.mean()),
    }


def one_seed(folder: Path, training: Sequence[object], device: str, seed: int) -> dict[str, Any]:
    """Train once, then calibrate, guarantee and evaluate in every way."""
    store, split, run = Store.open(folder / "store"), folder / f"split{seed}.json", folder / f"seed{seed}"
    drawn = Split.make(store.cases, seed, SHARES)
    drawn.save(split)
    begun = ("--data", store.path, "--split", split, "--seed", seed, "--out", run, *training)
    command("train", *(("--resume", run) if run.exists() else begun))
    measured: dict[str, dict[str, dict[str, list[float]]]] = {}
    dice = math.nan
    for name, options in CALIBRATIONS.items():
        if options is not None:
            command("calibrate", run, *options, "--force", "--folds", 2, "--device", device)
        command("guarantee", run, "--alpha", 0.1, "--device", device)
        dice, measured[name] = volumes(run, device)
        print(f"seed {seed}, {name}: " + ", ".join(
            f"{one} {summary(own, measured['none'][one])['width']:.0f} mm3" for one, own in measured[name].items()
        ), flush=True)  # fmt: skip
    sizes = {part: len(getattr(drawn, part)) for part in ("train", "validation", "test")}
    found = {
        name: {one: summary(own, measured["none"][one]) for one, own in classes.items()}
        for name, classes in measured.items()
    }
    return {"seed": seed, "patients": sizes, "dice": dice, "calibrations": found, "volumes": measured}


def _words(given: Sequence[object]) -> str:
    return " ".join(map(str, given))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("raw", type=Path, help="data set in nnU-Net's layout")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", type=int, default=1, help="seeds at a time")
    parser.add_argument("--work", type=Path, help="folder for data and runs (default: one that is deleted)")
    parser.add_argument("--out", type=Path, default=RESULTS / "volume_intervals.json")
    args = parser.parse_args(arguments)
    training = ("--epochs", args.epochs, "--no-pictures", "--accelerator", args.device)
    settings = {
        "data": args.raw.name,
        "preparation": _words(PREPARATION),
        "training": _words(training),
        "alpha": 0.1,
        "unit": "mm3",
    }
    result: dict[str, Any] = {"environment": environment(), **settings, "seeds": []}
    with tempfile.TemporaryDirectory() as temporary, Workers(args.jobs) as workers:
        folder = args.work or Path(temporary)
        if not (folder / "store").exists():
            command("prepare", "nnunet", args.raw, folder / "store", *PREPARATION)
        for one in workers.map(partial(one_seed, folder, training, args.device), args.seeds):
            result.setdefault("first_seed", one.pop("volumes"))
            result["seeds"].append({key: value for key, value in one.items() if key != "volumes"})
            save(args.out, result)


if __name__ == "__main__":
    main()
