"""``crac evaluate``: how good a model's segmentations are, and whether its probabilities can be trusted."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crac.cli.options import UNLESS_TOLD, add_ignore_index, add_mirror, add_model_options, refuse

if TYPE_CHECKING:
    from crac.evaluation import Evaluation

NAME = "evaluate"
HELP = "measure segmentations and the calibration of their probabilities"
EXAMPLE = """examples:
  crac evaluate runs/crac --split test --out audit
  crac evaluate --probabilities predictions --labels labelsTs --out audit
  crac evaluate --probabilities predictions --labels labelsTs --out audit --class-names background anterior posterior
  crac evaluate --probabilities predictions --labels labelsTs --out audit --mask union_foreground --jobs 4
  crac evaluate runs/crac --protocol clinical --out audit-mm
  crac evaluate runs/crac --mirror --out audit-mirrored

Protocols: "paper" measures as the paper does, on the prepared volumes with distances in voxels; "clinical" on the
image's own grid, in millimetres. Under both, a class that only the prediction or only the label shows is as far away as
the volume's diagonal. RUN is measured by "paper" unless told otherwise, PROBABILITIES by "clinical".

PROBABILITIES holds, for a label file NAME.nii.gz, one of
  NAME.npz                          nnU-Net v2's, from nnUNetv2_predict --save_probabilities
  NAME.nii.gz                       4-D, the classes on the first axis or the last
  NAME_0.nii.gz NAME_1.nii.gz ...   one file a class
  NAME_probabilities.nii.gz         crac predict's
  NAME.nii.gz or NAME_1.nii.gz      3-D, binary tasks: the foreground's probability alone

Defects of the files are all listed before anything is measured. OUT then holds report.html, the page that shows it
all, per_volume.csv, summary.json, and slices of the worst and of a middle case in cases.npz, in the place of those of
an earlier evaluation; a folder with anything else in it is refused. The numbers are explained in docs/metrics.md."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what the command takes."""
    add = parser.add_argument
    add("model", nargs="?", type=Path, metavar="RUN", help="folder of a run (crac train)")
    add("--split", choices=("train", "validation", "test"), help="part of RUN's split (default: test)")
    add("--data", type=Path, metavar="STORE", help="RUN's data, if it has moved")
    add_mirror(parser)
    add_model_options(parser)
    add("--probabilities", type=Path, metavar="DIR", help="folder of class probabilities")
    add("--labels", type=Path, metavar="DIR", help="folder of NIfTI label maps")
    orientation = "of nnU-Net's .npz whose .pkl is missing: as the image is stored, or turned to RAS by nnU-Net"
    add("--orientation", choices=("stored", "ras"), help=orientation)
    add_ignore_index(parser)
    add("--images", type=Path, metavar="DIR", help="folder of the images, NAME.nii.gz or NAME_0000.nii.gz, to look at")
    add("--out", type=Path, metavar="DIR", required=True, help="folder to write")
    add("--class-names", nargs="+", default=[], metavar="NAME", help="background first (default: 0 1 ...)")
    add("--protocol", choices=("paper", "clinical"), help="how to measure (default: RUN paper, else clinical)")
    add(
        "--mask",
        nargs="+",
        choices=("label_foreground", "predicted_foreground", "union_foreground", "band", "all"),
        help="voxels that calibration is measured on (default: the protocol's); label_foreground is the paper's and "
        "cannot see false positives, band holds all within 5 mm or pixels of labelled or predicted foreground",
    )
    add("--bins", type=int, help="number of bins (default: 15)")
    add("--hd95", choices=("pooled", "directed_max"), help="MedPy's definition or MONAI's (default: pooled)")
    add(
        "--empty",
        type=_empty,
        metavar="{nan,zero,diagonal,NUMBER}",
        help="distance where a class is absent from the prediction or the labels (default: diagonal)",
    )
    add("--unit", choices=("mm", "voxel"), help="of distances (default: the protocol's)")
    add("--tolerance", type=float, help="of the surface Dice, in that unit (default: 1)")
    add(
        "--regions",
        choices=("volume", "slice"),
        help="inside and boundary told apart in 3-D, or in each slice (default: slice for RUN in 2-D, else volume)",
    )
    add("--jobs", type=int, help="processes (default: RUN 1, else one a core)")
    ray = "measure on a Ray cluster that sees the same files; without an address, start one here"
    add("--ray", nargs="?", const="local", metavar="ADDRESS", help=ray)
    add(
        "--guarantees",
        type=Path,
        metavar="FILE.json",
        help="with --probabilities: measure what crac guarantee promised",
    )
    add("--no-guarantees", action="store_true", help="do not measure what RUN's guarantees.json promised")
    add(
        "--patient",
        metavar="REGEX",
        help="with --probabilities: part of a file's name that says whose it is (default: each volume is of another)",
    )
    add("--anonymous", action="store_true", help="no images and no names of patients and paths in the page")
    add("--json", action="store_true", help="print summary.json instead of a table")


def run(args: argparse.Namespace) -> int:
    """Measure, write, show."""
    from crac.errors import InputError
    from crac.report.folder import check_folder, write_report
    from crac.report.table import print_table

    if (args.model is None) == (args.probabilities is None) or (args.probabilities is None) != (args.labels is None):
        raise InputError("give either RUN, or both --probabilities and --labels")
    if args.model is None:
        of_runs = ("split", "data", "mirror", "no_guarantees", "no_calibration", *UNLESS_TOLD)
        refuse(args, "RUN; --probabilities are taken as they are, with every label file", *of_runs)
    else:
        of_files = ("class_names", "orientation", "ignore_index", "images", "guarantees", "patient")
        refuse(args, "--probabilities; RUN knows its own", *of_files)
    check_folder(args.out)
    names = ("bins", "hd95", "empty", "unit", "tolerance", "regions")
    given = {name: getattr(args, name) for name in names if getattr(args, name) is not None}
    given |= {"masks": tuple(args.mask)} if args.mask else {}
    given["look"] = not args.anonymous
    evaluation, about = _measure_files(args, given) if args.model is None else _measure_run(args, given)
    written = write_report(evaluation, args.out, anonymous=args.anonymous, **about)
    if args.json:
        print((args.out / "summary.json").read_text(encoding="utf-8").rstrip())
    else:
        print_table(evaluation)
        print(f"written to {args.out}: {', '.join(path.name for path in written)}")
    return 0


def _measure_files(args: argparse.Namespace, given: dict[str, Any]) -> tuple[Evaluation, dict[str, Any]]:
    from dataclasses import replace

    from crac.evaluation import Protocol, audit
    from crac.guarantees import load_guarantees
    from crac.progress import track

    look = given.pop("look")
    protocol = Protocol.named(args.protocol or "clinical", args.class_names, **given)
    protocol = replace(protocol, ignore_index=args.ignore_index)
    jobs = (os.cpu_count() or 1) if args.jobs is None else args.jobs
    found = None if args.guarantees is None else load_guarantees(args.guarantees)
    options = {"orientation": args.orientation, "look": look, "images": args.images, "guarantees": found}
    options |= {"jobs": jobs, "ray": args.ray, "track": track}
    evaluation = audit(args.probabilities, args.labels, protocol, args.patient, **options)
    source = {"probabilities": str(args.probabilities), "labels": str(args.labels)}
    return evaluation, {"source": source | ({} if found is None else {"guarantees": str(args.guarantees)})}


def _measure_run(args: argparse.Namespace, given: dict[str, Any]) -> tuple[Evaluation, dict[str, Any]]:
    from crac.evaluation.run import about_run, evaluate_run
    from crac.models.guarantees import run_guarantees
    from crac.models.model import Model
    from crac.progress import track

    split, protocol = args.split or "test", args.protocol or "paper"
    how = args.device, args.checkpoint, args.batch_size, args.mirror, not args.no_calibration
    model = Model.load(args.model, *how)
    given |= {"jobs": 1 if args.jobs is None else args.jobs, "ray": args.ray, "track": track}
    if not args.no_guarantees:
        given["guarantees"] = run_guarantees(args.model, model)
    evaluation = evaluate_run(args.model, model, split, args.data, protocol, **given)
    return evaluation, about_run(args.model, model, split, args.checkpoint)


def _empty(text: str) -> str | float:
    if text in ("nan", "zero", "diagonal"):
        return text
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be nan, zero, diagonal or a number; got {text!r}") from None
