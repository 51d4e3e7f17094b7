"""``crac nnunet``: the trainers for nnU-Net v2, and calibration of what nnU-Net has trained."""

import argparse
import json
import os
from pathlib import Path
from typing import Any

from crac.cli import apply, calibrate
from crac.errors import ProblemsError

NAME = "nnunet"
HELP = "trainers for nnU-Net v2, and calibration of models it has trained"
EXAMPLE = """examples:
  export nnUNet_extTrainer="$(crac nnunet path)"     tell nnU-Net where the trainers are
  crac nnunet check                                  would a training start?
  nnUNetv2_train 4 2d 0 -tr nnUNetTrainerCRaC        train

  MODEL=$nnUNet_results/Dataset004_Hippocampus/nnUNetTrainer__nnUNetPlans__2d
  crac nnunet calibrate $MODEL                       from the validation cases of its folds, trained with --npz
  nnUNetv2_predict -i imagesTs -o predicted -d 4 -c 2d -f 0 --save_probabilities
  crac nnunet apply $MODEL/calibration.json --predictions predicted --out calibrated"""
CALIBRATION = "calibration.json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what the command takes."""
    actions = parser.add_subparsers(title="actions", dest="action", required=True, metavar="ACTION")
    form: dict[str, Any] = {"epilog": EXAMPLE, "formatter_class": argparse.RawDescriptionHelpFormatter}
    actions.add_parser("path", help="print the folder that holds the trainers, for nnUNet_extTrainer", **form)
    check = "check nnU-Net's folders and version, and let nnU-Net look for each trainer"
    parser = actions.add_parser("check", help=check, **form)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser = actions.add_parser(
        "calibrate", help="calibrate a trained model on the validation cases of its folds", **form
    )
    add = parser.add_argument
    add("model", type=Path, metavar="MODEL", help="folder of nnUNet_results/DATASET, trained with --npz")
    add("--labels", type=Path, metavar="DIR", help="folder of labels (default: those of nnUNet_raw)")
    add("--out", type=Path, metavar="FILE.json", help=f"file to write (default: MODEL/{CALIBRATION})")
    add("--regions", choices=("volume", "slice"), help="boundaries in 3-D or in slices (default: as the network)")
    add("--patient", metavar="REGEX", help="part of a file's name that says whose it is (default: all of it)")
    calibrate.add_fitting_options(parser)
    parser = actions.add_parser("apply", help="calibrate what nnUNetv2_predict --save_probabilities wrote", **form)
    add = parser.add_argument
    add("calibrator", type=Path, metavar="FILE.json", help="written by crac nnunet calibrate")
    add("--predictions", dest="probabilities", type=Path, required=True, metavar="DIR", help="nnU-Net's output")
    add("--out", type=Path, required=True, metavar="DIR", help="folder to write to, for nnUNetv2_ensemble as well")
    add("--json", action="store_true", help="print the names of the volumes as JSON")


def run(args: argparse.Namespace) -> int:
    """Do what the action says."""
    if args.action == "calibrate":
        return _calibrate(args)
    if args.action == "apply":
        return apply.run(args)
    return _trainers(args)


def _trainers(args: argparse.Namespace) -> int:
    """Print the folder, or what is wrong with the set-up; exit code 2 if something is."""
    from crac.integrations.nnunet import TRAINERS, trainers_folder
    from crac.integrations.nnunet.check import problems

    if args.action == "path":
        print(trainers_folder())
        return 0
    found = problems()
    if args.json:
        print(json.dumps({"ok": not found, "problems": found, "trainers": TRAINERS}, indent=2))
        return 2 if found else 0
    if found:
        raise ProblemsError("nnU-Net is not set up", found)
    print("nnU-Net finds the trainers; train with one of")
    for name in TRAINERS:
        print(f"  nnUNetv2_train DATASET CONFIGURATION FOLD -tr {name}")
    return 0


def _calibrate(args: argparse.Namespace) -> int:
    from crac.integrations.nnunet.calibrate import of_model
    from crac.progress import track

    out = args.out or args.model / CALIBRATION
    given = of_model(args.model, args.labels, args.regions, args.patient, jobs=os.cpu_count() or 1, track=track)
    use = f"for predictions of single folds: crac nnunet apply {out} --predictions DIR --out DIR"
    return calibrate.fit(args, given, out, use, {"model": str(args.model)})
