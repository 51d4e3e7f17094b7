"""``crac guarantee``: from probabilities to promises about new patients."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from crac.cli.options import UNLESS_TOLD, add_mirror, add_model_options, add_sources, check_sources, refuse

if TYPE_CHECKING:
    from crac.guarantees import Guarantees

NAME = "guarantee"
HELP = "thresholds, margins and volume intervals that hold for new patients"
EXAMPLE = """examples:
  crac guarantee runs/crac --alpha 0.1              written into the run, after crac calibrate
  crac predict runs/crac image.nii.gz --out maps    then writes volumes with intervals, cores, and whom to look at
  crac evaluate runs/crac --out audit               then measures what was kept on the test patients
  crac guarantee runs/folds --alpha 0.1             on all patients, each by the fold that left them out
  crac guarantee --probabilities validation --labels labelsTr --alpha 0.1 --out guarantees.json
  crac evaluate --probabilities test --labels labelsTs --guarantees guarantees.json --out audit

ALPHA is the risk that is accepted: 0.1 promises 90 %, and needs at least 9 patients; 0.05 needs 19. Patients must be
such as the network was not trained on. A promise holds on average over new patients like these; it says nothing about
one patient, or another hospital. docs/guarantee.md explains each of them."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what the command takes."""
    add = parser.add_argument
    add_sources(parser)
    add("--alpha", type=float, default=0.1, help="the risk that is accepted (default: %(default)s)")
    add("--split", choices=("validation", "test"), help="part of RUN's split (default: validation)")
    add("--class-names", nargs="+", default=[], metavar="NAME", help="with --probabilities: background first")
    add(
        "--unit",
        choices=("mean", "worst"),
        default="mean",
        help="what several volumes of a patient count as (default: %(default)s)",
    )
    add("--acceptable", type=float, default=0.7, metavar="DICE", help="flags: lower is bad (default: %(default)s)")
    add("--jobs", type=int, help="with --probabilities: processes that check the files (default: one a core)")
    add_mirror(parser)
    add_model_options(parser)
    add("--json", action="store_true", help="print the file that was written")


def run(args: argparse.Namespace) -> int:
    """Fit, write, say what is promised."""
    from crac.guarantees.words import limits, promises

    check_sources(args)
    found, out = _of_files(args) if args.model is None else _of_run(args)
    if args.json:
        print(json.dumps(json.loads(out.read_text(encoding="utf-8")), indent=2))
        return 0
    for sentence in promises(found):
        print(sentence)
    print(limits(found))
    print(f"written to {out}")
    return 0


def _of_run(args: argparse.Namespace) -> tuple[Guarantees, Path]:
    from crac.errors import InputError
    from crac.evaluation.guarantees import guarantee_folds, guarantee_run
    from crac.files import check_writable
    from crac.models.ensemble import Ensemble, load
    from crac.models.folds import Folds
    from crac.models.guarantees import GUARANTEES
    from crac.models.model import Model
    from crac.progress import track

    of_files = ("out", "patient", "class_names", "orientation", "ignore_index", "jobs")
    refuse(args, "--probabilities; RUN has its own", *of_files)
    check_writable(args.model / GUARANTEES)
    given = args.model, args.device, args.checkpoint, args.batch_size, args.mirror, not args.no_calibration
    options = {"unit": args.unit, "acceptable": args.acceptable, "track": track}
    if Folds.at(args.model):
        if args.split:
            raise InputError("--split goes with a single run; of folds, every patient is left out once")
        ensemble = load(*given)
        assert isinstance(ensemble, Ensemble)
        found = guarantee_folds(args.model, ensemble, args.alpha, args.data, **options)
    else:
        found = guarantee_run(
            args.model, Model.load(*given), args.alpha, args.split or "validation", args.data, **options
        )
    return found, args.model / GUARANTEES


def _of_files(args: argparse.Namespace) -> tuple[Guarantees, Path]:
    from crac.errors import InputError
    from crac.evaluation.guarantees import guarantee_files
    from crac.files import check_writable
    from crac.progress import track

    if args.out is None or args.out.is_dir() or not args.out.parent.is_dir():
        raise InputError(f"--out must be a file in a folder that exists, e.g. guarantees.json; got {args.out}")
    of_runs = ("split", "mirror", "data", "no_calibration", *UNLESS_TOLD)
    refuse(args, "RUN; --probabilities are taken as they are", *of_runs)
    check_writable(args.out)
    found = guarantee_files(
        args.probabilities, args.labels, args.alpha, args.patient, class_names=args.class_names,
        orientation=args.orientation, ignore_index=args.ignore_index, unit=args.unit, acceptable=args.acceptable,
        jobs=(os.cpu_count() or 1) if args.jobs is None else args.jobs, track=track,
    )  # fmt: skip
    found.save(args.out)
    return found, args.out
