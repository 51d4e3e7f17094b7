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

from crac.cli.settings import add_settings, flag, given_settings
from crac.errors import InputError

if TYPE_CHECKING:
    from crac.training import Result

NAME = "train"
HELP = "train a network on a prepared store"
EXAMPLE = """examples:
  crac train --data acdc-store --out runs/first                    the practical recipe; every setting can be changed
  crac train --data acdc-store --recipe paper --seed 0 --out runs/crac         the paper's network, loss and schedule
  crac train --config settings.yaml --seed 1 --out runs/crac-1     settings from a file; options win over it
  crac train --data acdc-store --method nacl --method-options alpha=0.2 --out runs/nacl
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
        "--resume", metavar="RUN", help="go on with a run; takes --epochs, to extend it, and no other setting"
    )
    config = "YAML file of settings, named as the options (batch_size: 8)"
    parser.add_argument("--config", type=Path, metavar="FILE", help=config)
    add_settings(parser, TrainConfig, {"paper": PAPER})
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def run(args: argparse.Namespace) -> int:
    """Train or resume, then say how it ended."""
    from crac.training import TrainConfig, TrainingError, resume, train
    from crac.training.engine import is_first

    settings = given_settings(args, TrainConfig)
    if args.resume is not None:
        epochs = settings.pop("epochs", None)
        if given := [*settings, *(name for name in ("out", "config") if getattr(args, name))]:
            raise InputError(f"--resume takes its settings from the run; got also {', '.join(map(flag, given))}")
    elif args.out is None:
        raise InputError("--out is missing: name a folder for the run, or --resume one")
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
        print(json.dumps({"run": str(result.run), "finished": result.finished, "best": finite(best)}, indent=2))
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
