"""``crac train``: train a network on a prepared store, or go on with a run."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from crac.cli.options import refuse
from crac.cli.settings import add_settings, flag, given_settings
from crac.errors import InputError

if TYPE_CHECKING:
    from crac.training import FoldsResult, Result

NAME = "train"
HELP = "train a network on a prepared store"
EXAMPLE = """examples:
  crac train --data acdc-store --out runs/first                    the practical recipe; every setting can be changed
  crac train --data acdc-store --recipe paper --seed 0 --out runs/crac         the paper's network, loss and schedule
  crac train --config settings.yaml --seed 1 --out runs/crac-1     settings from a file; options win over it
  crac train --data acdc-store --method nacl --method-options alpha=0.2 --out runs/nacl
  crac train --data acdc-store --folds 5 --jobs 5 --out folds      cross-validation: five runs, five at a time
  crac train --resume runs/crac                                    after Ctrl-C, a crash or a power cut
  crac train --resume runs/crac --epochs 200                       a finished run goes further
  crac train --data other-store --init runs/crac --out runs/other  begins from another run's weights

The run's folder holds config.yaml, split.json, environment.json, metrics.csv, TensorBoard files and the checkpoints
best.safetensors and last.safetensors."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what the command takes."""
    from crac.training.config import PAPER, TrainConfig

    parser.add_argument("--out", metavar="RUN", help="folder of the new run")
    parser.add_argument(
        "--resume",
        metavar="RUN",
        help="go on with a run or with folds; of a run takes --epochs, to extend it, and no other setting",
    )
    parser.add_argument("--folds", type=int, metavar="N", help="train N runs, each leaving out other patients")
    parser.add_argument("--fold", type=int, nargs="+", metavar="I", help="with --folds: those to train now, from 0")
    parser.add_argument("--jobs", type=int, metavar="N", help="with --folds: runs at a time (default: 1)")
    ray = "with --folds: train on a Ray cluster; without an address, start one"
    parser.add_argument("--ray", nargs="?", const="local", metavar="ADDRESS", help=ray)
    config = "YAML file of settings, named as the options (batch_size: 8)"
    parser.add_argument("--config", type=Path, metavar="FILE", help=config)
    add_settings(parser, TrainConfig, {"paper": PAPER})
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def run(args: argparse.Namespace) -> int:
    """Train or resume, then say how it ended."""
    from crac.models.folds import Folds
    from crac.training import TrainConfig, TrainingError, resume, resume_folds, train, train_folds
    from crac.training.engine import is_first

    settings = given_settings(args, TrainConfig)
    folded = args.folds is not None or (args.resume is not None and Folds.at(args.resume))
    if not folded:
        refuse(args, "--folds", "fold", "jobs", "ray")
    if args.resume is not None:
        epochs = None if folded else settings.pop("epochs", None)
        others = ("out", "config", "folds", "fold")
        if given := [*settings, *(name for name in others if getattr(args, name) is not None)]:
            raise InputError(f"--resume takes its settings from the run; got also {', '.join(map(flag, given))}")
    elif args.out is None:
        raise InputError("--out is missing: name a folder for the run, or --resume one")
    if folded:
        with _result_alone() if args.json else contextlib.nullcontext():
            way = {"jobs": args.jobs, "ray": args.ray}
            if args.resume is not None:
                folds = resume_folds(args.resume, **way)
            else:
                config = TrainConfig.load(args.config, settings)
                folds = train_folds(config, args.out, args.folds, args.fold or (), **way)
        return _say_folds(folds, args.json)
    try:
        with _result_alone() if args.json else contextlib.nullcontext():
            if args.resume is not None:
                result = resume(args.resume, epochs)
            else:
                result = train(TrainConfig.load(args.config, settings), args.out)
    except TrainingError as error:
        print(f"crac train: {error}", file=sys.stderr)
        return 1 if is_first() else 0
    if not is_first():
        return 0
    _say(result, args.json)
    return 0 if result.finished else 130


@contextlib.contextmanager
def _result_alone() -> Iterator[None]:
    """Leave standard output to the result: what else prints, compiled libraries too, does so on standard error."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def _say(result: Result, as_json: bool) -> None:
    from crac.files import finite
    from crac.training.run import resume_command

    best = max(result.history, key=lambda row: row["dice"], default=None)
    if as_json:
        print(
            json.dumps(
                {"run": str(result.run), "finished": result.finished, "best": finite(best), "plan": result.plan},
                indent=2,
            )
        )
    elif best and not best["dice"] > 0:
        print(
            f"no model: the validation Dice is 0 in every epoch, so that {result.run / 'best.safetensors'}, of epoch "
            f"{int(best['epoch'])}, has found nothing"
        )
    elif best:
        print(
            f"best validation Dice {best['dice']:.4f} in epoch {int(best['epoch'])}: {result.run / 'best.safetensors'}"
        )
    if not result.finished:
        print(f"stopped before the last epoch; continue with: {resume_command(result.run)}", file=sys.stderr)


def _say_folds(result: FoldsResult, as_json: bool) -> int:
    if as_json:
        print(json.dumps(result.__dict__ | {"path": str(result.path)}, indent=2))
    else:
        for name, dice in result.dice.items():
            print(f"{name}: best validation Dice {dice:.4f}")
        if result.dice:
            mean = sum(result.dice.values()) / len(result.dice)
            then = "" if result.left else f"; next: crac calibrate {result.path}"
            print(f"mean of {len(result.dice)} fold{'s' * (len(result.dice) > 1)} {mean:.4f}{then}")
    for name, problem in result.broken.items():
        print(f"crac train: {name}: {problem}", file=sys.stderr)
    if left := [name for name in result.left if name not in result.broken]:
        print(f"not finished: {', '.join(left)}; continue with: crac train --resume {result.path}", file=sys.stderr)
    return 130 if result.stopped else 1 if result.broken else 0
