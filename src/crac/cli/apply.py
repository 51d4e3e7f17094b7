"""``crac apply``: calibrated copies of probability files."""

import argparse
import json
from pathlib import Path

NAME = "apply"
HELP = "calibrate the probability files of any model"
EXAMPLE = """examples:
  crac calibrate --probabilities validation --labels labelsTr --out calibration.json
  crac apply calibration.json --probabilities predicted --out calibrated

OUT receives the same kind of files as PROBABILITIES holds, with their names, geometry and number type:
  NAME.npz                          nnU-Net v2's, with what its own ensembling needs beside it
  NAME.nii.gz                       4-D, the classes on the first axis or the last
  NAME_0.nii.gz NAME_1.nii.gz ...   one file a class
  NAME_probabilities.nii.gz         crac predict's
  NAME.nii.gz or NAME_1.nii.gz      3-D, binary tasks: the foreground's probability alone

One volume is in memory at a time. Started again, the command goes on where it was stopped. The most probable class of a
voxel never changes (but for vector's)."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what the command takes."""
    parser.add_argument("calibrator", type=Path, metavar="FILE.json", help="written by crac calibrate")
    parser.add_argument(
        "--probabilities", type=Path, required=True, metavar="DIR", help="folder of class probabilities"
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder to write to")
    parser.add_argument("--json", action="store_true", help="print the names of the volumes as JSON")


def run(args: argparse.Namespace) -> int:
    """Calibrate every volume."""
    from crac.evaluation.apply import apply_calibrator
    from crac.progress import track

    done = apply_calibrator(args.calibrator, args.probabilities, args.out, track)
    if args.json:
        print(json.dumps(done._asdict(), indent=2))
        return 0
    already = f", {len(done.skipped)} were there already" if done.skipped else ""
    print(f"{len(done.written)} volume{'s' * (len(done.written) != 1)} calibrated{already}: {args.out}")
    return 0
