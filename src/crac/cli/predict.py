"""``crac predict``: calibrated probability maps of new images."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from crac.cli.options import add_mirror, add_model_options

NAME = "predict"
HELP = "segment new images, with maps of how sure the model is"
EXAMPLE = """examples:
  crac predict runs/crac patient101_frame01.nii.gz --out maps
  crac predict runs/crac imagesTs --out maps --mirror
  crac predict runs/seed0 runs/seed1 imagesTs --out maps    the mean of two runs
  crac predict runs/folds imagesTs --out maps               the mean of runs/folds/fold_0, fold_1, ...
  crac predict runs/crac ct.nii.gz --out maps --maps label probabilities --dtype uint8

RUN is the folder of a run, a checkpoint file, or a folder of folds; several are an ensemble, runs before images.
INPUT is an image (NIfTI, NRRD, .mgz, .mgh, or a folder with a DICOM series) or a folder of images; NAME_0000.nii.gz,
NAME_0001.nii.gz, ... are the channels of one image.
For each image NAME, OUT holds, on the image's own grid:
  NAME_label.nii.gz          most probable class
  NAME_confidence.nii.gz     probability of the most probable class
  NAME_entropy.nii.gz        uncertainty, 0 (sure) to 1 (no idea)
  NAME_probabilities.nii.gz  probability of every class, along the fourth axis
and after crac guarantee
  NAME_volumes.csv           volume of every class in ml, with an interval
  NAME_possible.nii.gz       1 where a class cannot be excluded, along the fourth axis
  NAME_certain.nii.gz        1 where a class is certain
  NAME_review.json           whether a person should look at it, and why
Images whose maps are there already are left alone: a prediction that was interrupted goes on."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what the command takes."""
    parser.add_argument("model", type=Path, metavar="RUN", help="folder of a run or of folds, or a checkpoint file")
    parser.add_argument(
        "input", type=Path, nargs="+", metavar="INPUT", help="further runs, then images or folders of them"
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder to write to")
    add_mirror(parser)
    parser.add_argument(
        "--maps",
        nargs="+",
        default=["label", "confidence", "entropy", "probabilities"],
        choices=("label", "confidence", "entropy", "probabilities"),
        help="which maps to write (default: all)",
    )
    parser.add_argument(
        "--dtype",
        choices=("float32", "float16", "uint8"),
        default="float32",
        help="precision of probabilities, confidence and entropy; uint8 has steps of 1/255 (default: %(default)s)",
    )
    parser.add_argument(
        "--largest-component", action="store_true", help="keep only the largest connected part of each class's label"
    )
    parser.add_argument("--force", action="store_true", help="segment images again whose maps are there already")
    add_model_options(parser)
    parser.add_argument("--no-guarantees", action="store_true", help="maps only, without RUN's guarantees.json")
    parser.add_argument("--json", action="store_true", help="print the files, volumes and flag of every image as JSON")


def run(args: argparse.Namespace) -> int:
    """Predict every image."""
    from crac.guarantees.words import ESTIMATE, OUT_OF_FOLD
    from crac.models.ensemble import load, split_runs
    from crac.models.guarantees import GUARANTEES, run_guarantees
    from crac.models.maps import Map, Output
    from crac.models.predict import find_images, predict_images
    from crac.models.promised import Promised, review
    from crac.progress import note, track

    runs, inputs = split_runs([args.model, *args.input])
    model = load(runs, args.device, args.checkpoint, args.batch_size, args.mirror, not args.no_calibration)
    images = find_images(inputs, len(model.card.channel_names))
    outputs: list[Output] = [Map(name, args.dtype, args.largest_component) for name in dict.fromkeys(args.maps)]
    promised = None if args.no_guarantees or len(runs) > 1 else run_guarantees(runs[0], model)
    outputs += [] if promised is None else [Promised(promised)]
    if len(runs) > 1 and not args.no_guarantees and any((run / GUARANTEES).exists() for run in runs):
        note("an ensemble has no guarantees of its own, and those of its runs do not hold for it: none are written")
    if promised is not None and promised.fitted.get("split") == OUT_OF_FOLD:
        note(f"guarantees are those of the folds: {ESTIMATE[0].lower()}{ESTIMATE[1:]}")
    found = predict_images(model, images, args.out, track, outputs, args.force)
    before = len(found.finished) // sum(len(output.files("")) for output in outputs)
    said = f"{_images(len(images) - before)} segmented"
    said += f", {_images(before)} finished before (--force segments them again)" if before else ""
    print(f"{said}: {args.out}", file=sys.stderr if args.json else sys.stdout)
    reviews = {image.name: {} if promised is None else review(args.out, image.name) for image in images}
    for name, own in reviews.items():
        if own.get("look"):
            print(f"look at {name}: {own['reason']}", file=sys.stderr if args.json else sys.stdout)
    if len(images) == 1 and not args.json:
        for row in reviews[images[0].name].get("volumes", []):
            print(_volume(row))
    if args.json:
        files = {name: [str(args.out / file) for output in outputs for file in output.files(name)] for name in reviews}
        print(json.dumps([{"image": name, "files": files[name], **own} for name, own in reviews.items()], indent=2))
    return 0


def _volume(row: dict[str, Any]) -> str:
    said = f"{row['class']}: {row['estimate_ml']:.4g} ml"
    if row["high_ml"] is None:
        return f"{said}, without a bounded interval: {row['note']}"
    return f"{said}, {100 * row['level']:g} % interval from {row['low_ml']:.4g} to {row['high_ml']:.4g} ml"


def _images(number: int) -> str:
    return f"{number} image{'s' * (number != 1)}"
