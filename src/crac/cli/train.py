"""``crac train``: train a network on a prepared store, or go on with a run."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from crac.errors import InputError

if TYPE_CHECKING:
    from crac.training import Result

NAME = "train"
HELP = "train a network on a prepared store"
EXAMPLE = """examples:
  crac train --data acdc-store --method crac --backbone unet --epochs 100 --seed 0 --out runs/crac
  crac train --config settings.yaml --seed 1 --out runs/crac-1     settings from a file; options win over it
  crac train --data acdc-store --method nacl --method-options alpha=0.2 --out runs/nacl
  crac train --resume runs/crac                                    after Ctrl-C, a crash or a power cut

The run's folder holds config.yaml, split.json, environment.json, metrics.csv, TensorBoard files and the checkpoints
best.safetensors and last.safetensors."""

OPTIONS: dict[str, dict[str, Any]] = {
    "data": {"metavar": "STORE", "help": "prepared store (crac prepare)"},
    "method": {"help": "loss: ce fl ecp ls svls mbls nacl bwcr ml1ace crac (default: crac)"},
    "method_options": {"nargs": "+", "metavar": "NAME=VALUE", "help": "keywords of the loss, e.g. alpha=0.2"},
    "backbone": {"help": "network: unet or nnunet (default: unet)"},
    "width": {"type": int, "help": "filters of the network's first level (default: 32)"},
    "dims": {"type": int, "choices": (2, 3), "help": "slices or volumes (default: what the store is meant for)"},
    "patch_size": {"type": int, "nargs": "+", "metavar": "N", "help": "sides of random patches (default: whole)"},
    "epochs": {"type": int, "help": "default: 100"},
    "batch_size": {"type": int, "help": "images of one step, over all devices together (default: 16)"},
    "learning_rate": {"type": float, "help": "of Adam (default: 1e-3)"},
    "late_learning_rate": {"type": float, "help": "of Adam in the later part (default: 1e-4)"},
    "late_from": {"type": float, "help": "where the later part begins, as a share of the epochs (default: 0.5)"},
    "seed": {"type": int, "help": "of weights, order and augmentation (default: 0)"},
    "split": {"metavar": "FILE", "help": "split file (default: drawn with --split-seed)"},
    "split_seed": {"type": int, "help": "of the 70/10/20 split by patient (default: 0)"},
    "augment": {"switch": True, "help": "flip, rotate, scale and shift intensities"},
    "precision": {"choices": ("fp32", "tf32", "bf16", "fp16"), "help": "default: fp32"},
    "channels_last": {"switch": True, "help": "memory layout that GPUs prefer"},
    "compile": {"switch": True, "help": "optimise the network with torch.compile"},
    "cuda_graph": {"switch": True, "help": "record the training step once and replay it (one GPU, not fp16)"},
    "cache": {"choices": ("mmap", "memory", "device"), "help": "where the images live (default: memory)"},
    "deterministic": {"switch": True, "help": "the same result to the last bit (CPU)"},
    "accelerator": {"choices": ("auto", "cpu", "cuda"), "help": "default: auto"},
    "devices": {"type": int, "help": "processes on each node, one a device (default: 1)"},
    "nodes": {"type": int, "help": "machines (default: 1)"},
    "save_every": {"type": int, "help": "epochs between checkpoints to go on from (default: 1)"},
    "pictures": {"switch": True, "help": "TensorBoard files, and the multipliers drawn (default: yes)"},
    "mlflow": {"switch": True, "help": "log to MLflow as well"},
}
"""Setting -> how the command line spells it; the same names as in a settings file."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what the command takes."""
    parser.add_argument("--out", metavar="RUN", help="folder of the new run")
    parser.add_argument("--resume", metavar="RUN", help="go on with a run; takes no other setting")
    parser.add_argument("--config", metavar="FILE", help="YAML file of settings, named as the options (batch_size: 8)")
    for name, options in OPTIONS.items():
        options = dict(options)
        if options.pop("switch", False):
            options["action"] = argparse.BooleanOptionalAction
        parser.add_argument(f"--{name.replace('_', '-')}", default=None, **options)
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def run(args: argparse.Namespace) -> int:
    """Train or resume, then say how it ended."""
    settings = {name: getattr(args, name) for name in OPTIONS if getattr(args, name) is not None}
    if args.resume is not None:
        given = [
            f"--{name.replace('_', '-')}" for name in [*settings, *(n for n in ("out", "config") if getattr(args, n))]
        ]
        if given:
            raise InputError(f"--resume takes its settings from the run; got also {', '.join(given)}")
    elif args.out is None:
        raise InputError("--out is missing: name a folder for the run, or --resume one")
    from pathlib import Path

    from crac.training import TrainConfig, TrainingError, resume, train
    from crac.training.engine import is_first

    if "method_options" in settings:
        settings["method_options"] = dict(_pair(text) for text in settings["method_options"])
    try:
        with _result_alone() if args.json else contextlib.nullcontext():
            if args.resume is not None:
                result = resume(args.resume)
            else:
                result = train(TrainConfig.load(Path(args.config) if args.config else None, settings), args.out)
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
    elif best:
        print(
            f"best validation Dice {best['dice']:.4f} in epoch {int(best['epoch'])}: {result.run / 'best.safetensors'}"
        )
    if not result.finished:
        print(f"stopped before the last epoch; continue with: {resume_command(result.run)}", file=sys.stderr)


def _pair(text: str) -> tuple[str, Any]:
    import yaml

    name, sign, value = text.partition("=")
    if not sign or not name:
        raise InputError(f"--method-options must be NAME=VALUE; got {text!r}")
    try:
        return name, yaml.safe_load(value)
    except yaml.YAMLError:
        raise InputError(f"--method-options: the value of {name} cannot be read; got {value!r}") from None
