"""``crac evaluate``: how good a model's segmentations are, and whether its probabilities can be trusted."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crac.cli.predict import add_model_options

if TYPE_CHECKING:
    from crac.evaluation.protocol import Evaluation

NAME = "evaluate"
HELP = "measure segmentations and the calibration of their probabilities"
EXAMPLE = """examples:
  crac evaluate runs/crac --split test --out audit
  crac evaluate --probabilities predictions --labels labelsTs --out audit
  crac evaluate --probabilities predictions --labels labelsTs --out audit --class-names background anterior posterior
  crac evaluate --probabilities predictions --labels labelsTs --out audit --mask union_foreground --jobs 4

RUN is measured as the authors of the paper do: on the prepared volumes of its own split, HD95 in voxels, 0 where a
class is absent. PROBABILITIES holds, for a label file NAME.nii.gz, one of
  NAME.npz                          nnU-Net v2's, from nnUNetv2_predict --save_probabilities
  NAME.nii.gz                       4-D, the classes on the first axis or the last
  NAME_0.nii.gz NAME_1.nii.gz ...   one file a class
  NAME_probabilities.nii.gz         crac predict's

Defects of the files are all listed before anything is measured. OUT then holds per_volume.csv, summary.json and
plots; the numbers are explained in docs/metrics.md."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what the command takes."""
    parser.add_argument("model", nargs="?", type=Path, metavar="RUN", help="folder of a run (crac train)")
    parser.add_argument("--split", choices=("train", "validation", "test"), help="part of RUN's split (default: test)")
    parser.add_argument("--data", type=Path, metavar="STORE", help="RUN's data, if it has moved")
    add_model_options(parser)
    parser.add_argument("--probabilities", type=Path, metavar="DIR", help="folder of class probabilities")
    parser.add_argument("--labels", type=Path, metavar="DIR", help="folder of NIfTI label maps")
    parser.add_argument("--out", type=Path, metavar="DIR", required=True, help="folder to write")
    parser.add_argument(
        "--class-names", nargs="+", default=[], metavar="NAME", help="background first (default: 0 1 ...)"
    )
    parser.add_argument(
        "--mask",
        nargs="+",
        choices=("label_foreground", "predicted_foreground", "union_foreground", "all"),
        default=["label_foreground", "all"],
        help="voxels that calibration is measured on (default: label_foreground, the paper's, which cannot see false "
        "positives, and all)",
    )
    parser.add_argument("--bins", type=int, default=15, help="number of bins (default: %(default)s)")
    parser.add_argument(
        "--hd95",
        choices=("pooled", "directed_max"),
        default="pooled",
        help="MedPy's definition or MONAI's (default: %(default)s)",
    )
    parser.add_argument(
        "--empty",
        type=_empty,
        metavar="{nan,zero,diagonal,NUMBER}",
        help="distance where a class is absent from the prediction or the labels (default: nan, left out of the mean; "
        "RUN: zero)",
    )
    parser.add_argument("--unit", choices=("mm", "voxel"), help="of distances (default: mm; RUN: voxel)")
    parser.add_argument(
        "--tolerance", type=float, default=1.0, help="of the surface Dice, in that unit (default: %(default)s)"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print summary.json instead of a table")


def run(args: argparse.Namespace) -> int:
    """Measure, write, show."""
    from crac.errors import InputError
    from crac.report.folder import print_table, write_report

    if (args.model is None) == (args.probabilities is None) or (args.probabilities is None) != (args.labels is None):
        raise InputError("give either RUN, or both --probabilities and --labels")
    if args.model is not None and args.class_names:
        raise InputError("--class-names goes with --probabilities; RUN knows its classes")
    if args.model is None and (args.split or args.data):
        raise InputError("--split and --data go with RUN; --probabilities are measured on every label file")
    if args.out.exists() and not args.out.is_dir():
        raise InputError(f"--out must be a folder or not exist yet; {args.out} is a file")
    given = {"masks": args.mask, "bins": args.bins, "hd95": args.hd95, "tolerance": args.tolerance}
    given |= {name: getattr(args, name) for name in ("unit", "empty") if getattr(args, name) is not None}
    evaluation, source = _measure_files(args, given) if args.model is None else _measure_run(args, given)
    written = write_report(evaluation, args.out, source)
    if args.json:
        print(json.dumps(json.loads((args.out / "summary.json").read_text(encoding="utf-8")), indent=2))
    else:
        print_table(evaluation)
        print(f"written to {args.out}: {', '.join(path.name for path in written)}")
    return 0


def _measure_files(args: argparse.Namespace, given: dict[str, Any]) -> tuple[Evaluation, dict[str, str]]:
    from crac.evaluation import audit
    from crac.evaluation.protocol import Protocol
    from crac.progress import track

    evaluation = audit(args.probabilities, args.labels, Protocol(args.class_names, **given), args.jobs, track)
    return evaluation, {"probabilities": str(args.probabilities), "labels": str(args.labels)}


def _measure_run(args: argparse.Namespace, given: dict[str, Any]) -> tuple[Evaluation, dict[str, str]]:
    from crac.evaluation.run import evaluate_run
    from crac.models.model import Model
    from crac.progress import track

    split = args.split or "test"
    model = Model.load(args.model, args.device, args.checkpoint, args.batch_size)
    evaluation = evaluate_run(args.model, model, split, args.data, track, **given)
    return evaluation, {"run": str(args.model), "split": split, "checkpoint": args.checkpoint}


def _empty(text: str) -> str | float:
    if text in ("nan", "zero", "diagonal"):
        return text
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be nan, zero, diagonal or a number; got {text!r}") from None
