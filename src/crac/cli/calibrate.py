"""``crac calibrate``: probabilities that mean something, from a model that is trained already."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from crac.cli.predict import add_model_options

if TYPE_CHECKING:
    from crac.evaluation.crossfit import Gain

NAME = "calibrate"
HELP = "repair the probabilities of a trained run"
EXAMPLE = """examples:
  crac calibrate runs/crac                          class and region, written into the run
  crac calibrate runs/crac --compare                every method in one table; nothing is written
  crac calibrate runs/crac --method temperature
  crac predict runs/crac image.nii.gz --out maps    uses it from then on; --no-calibration does not

The calibrator is fitted on the run's validation part, which the network was not trained on, and judged on patients left
out: divided into folds, each patient is measured with a calibrator fitted on the others. Where the likelihood does not
show a gain, the run is left as it is, unless --force says otherwise. Labels never change (but for vector's)."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what the command takes."""
    parser.add_argument("model", type=Path, metavar="RUN", help="folder of a run (crac train)")
    parser.add_argument(
        "--method",
        default="class_region",
        choices=("temperature", "class", "region", "class_region", "class_region_affine", "vector"),
        help="default: %(default)s",
    )
    parser.add_argument("--compare", action="store_true", help="judge every method and write nothing")
    parser.add_argument("--folds", type=int, default=5, metavar="N", help="groups of patients (default: %(default)s)")
    parser.add_argument("--force", action="store_true", help="write it even where no gain is shown")
    parser.add_argument("--tta", action="store_true", help="for prediction with --tta: mirrored versions averaged")
    parser.add_argument("--data", type=Path, metavar="STORE", help="RUN's data, if it has moved")
    add_model_options(parser, calibration=False)
    parser.add_argument("--json", action="store_true", help="print what was found as JSON")


def run(args: argparse.Namespace) -> int:
    """Fit, judge, write, say."""
    from crac.errors import InputError
    from crac.evaluation.calibrate import calibrate_run, compare_calibrators
    from crac.files import finite
    from crac.models.model import CALIBRATION, Model
    from crac.progress import track

    if args.model.is_file():
        raise InputError(f"RUN must be the folder of a run, which names its validation part; got the file {args.model}")
    model = Model.load(args.model, args.device, args.checkpoint, args.batch_size, args.tta, calibrated=False)
    calibrator = None
    if args.compare:
        gains = compare_calibrators(args.model, model, args.data, folds=args.folds, track=track)
    else:
        found = calibrate_run(
            args.model, model, args.method, args.data, folds=args.folds, force=args.force,
            checkpoint=args.checkpoint, track=track,
        )  # fmt: skip
        gains, calibrator = {args.method: found.gains}, found.calibrator
    written = None if calibrator is None else args.model / CALIBRATION
    if args.json:
        plain = {method: [gain._asdict() for gain in own] for method, own in gains.items()}
        print(json.dumps({"gains": finite(plain), "written": None if written is None else str(written)}, indent=2))
        return 0
    _show(gains)
    _say(args, gains, written, [] if calibrator is None else calibrator.fitted["notes"])
    return 0


def _show(gains: dict[str, list[Gain]]) -> None:
    from crac.errors import require

    table = require("rich.table").Table(title="validation patients, each left out of the fit", title_justify="left")
    for heading in ("method", "measure [mask]", "before", "after", "difference, 95 % interval over patients"):
        table.add_column(heading, justify="left" if heading in ("method", "measure [mask]") else "right")
    text = require("rich.text").Text
    for method, own in gains.items():
        for number, gain in enumerate(own):
            difference = "{:+.4f} [{:+.4f}, {:+.4f}]".format(*gain.difference)
            values = (
                method if number == 0 else "",
                gain.measure,
                f"{gain.before:.4f}",
                f"{gain.after:.4f}",
                difference,
            )
            table.add_row(*map(text, values))
        table.add_section()
    require("rich.console").Console(highlight=False, width=110 if not sys.stdout.isatty() else None).print(table)


def _say(args: argparse.Namespace, gains: dict[str, list[Gain]], written: Path | None, notes: list[str]) -> None:
    if args.compare:
        best = min(gains, key=lambda method: gains[method][0].after)
        print(f"lowest likelihood loss (nll, band) on patients left out: {best}; to use it: --method {best}")
        return
    decisive = gains[args.method][0]
    if not decisive.shown:
        print(f"no gain is shown: the interval of {decisive.measure} does not lie below 0")
    if written is None:
        print(f"{args.model} is left as it is; --force writes the calibrator all the same, --compare shows the others")
        return
    for note in notes:
        print(f"note: {note}")
    print(f"written to {written}; crac predict and crac evaluate use it, --no-calibration shows the network as it is")
