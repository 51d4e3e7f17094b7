"""``crac predict``: calibrated probability maps of new images."""

import argparse
import json
from pathlib import Path

NAME = "predict"
HELP = "segment new images, with maps of how sure the model is"
EXAMPLE = """examples:
  crac predict runs/crac patient101_frame01.nii.gz --out maps
  crac predict runs/crac imagesTs --out maps --tta

INPUT is a NIfTI file, or a folder of them; NAME_0000.nii.gz, NAME_0001.nii.gz, ... are the channels of one image.
For each image NAME, OUT holds, on the image's own grid:
  NAME_label.nii.gz          most probable class
  NAME_probabilities.nii.gz  probability of every class, along the fourth axis
  NAME_confidence.nii.gz     probability of the most probable class
  NAME_entropy.nii.gz        uncertainty, 0 (sure) to 1 (no idea)"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what the command takes."""
    parser.add_argument("model", type=Path, metavar="RUN", help="folder of a run, or a checkpoint file")
    parser.add_argument("input", type=Path, nargs="+", metavar="INPUT", help="NIfTI file or folder")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder to write to")
    parser.add_argument("--tta", action="store_true", help="average over mirrored versions of each image")
    add_model_options(parser)
    parser.add_argument("--json", action="store_true", help="print the files written as JSON")


def add_model_options(parser: argparse.ArgumentParser, calibration: bool = True) -> None:
    """How a model is loaded and run, and whether its calibration is used."""
    parser.add_argument("--checkpoint", choices=("best", "last"), default="best", help="default: %(default)s")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1, ... (default: %(default)s)")
    parser.add_argument("--batch-size", type=int, default=16, help="slices or windows at a time (default: %(default)s)")
    if calibration:
        parser.add_argument(
            "--no-calibration", action="store_true", help="the network as it is, without calibration.json"
        )


def run(args: argparse.Namespace) -> int:
    """Predict every image."""
    from crac.models.model import Model
    from crac.models.predict import find_images, predict_images
    from crac.progress import track

    model = Model.load(args.model, args.device, args.checkpoint, args.batch_size, args.tta, not args.no_calibration)
    images = find_images(args.input, len(model.card.channel_names))
    written = predict_images(model, images, args.out, track)
    if args.json:
        print(json.dumps([str(path) for path in written], indent=2))
    else:
        print(f"{len(images)} image{'s' * (len(images) > 1)} segmented: {args.out}")
    return 0
