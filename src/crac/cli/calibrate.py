"""``crac calibrate``: probabilities that mean something, from a model that is trained already."""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from crac.cli.options import UNLESS_TOLD, add_model_options, add_sources, check_sources, refuse

if TYPE_CHECKING:
    from crac.evaluation.calibrate import Calibratable
    from crac.evaluation.crossfit import Gain

PAGE = ".html"
NAME = "calibrate"
HELP = "repair the probabilities of a trained model"
EXAMPLE = """examples:
  crac calibrate runs/crac                          class and region, written into the run
  crac calibrate runs/crac --compare                every method in one table; nothing is written
  crac predict runs/crac image.nii.gz --out maps    uses it from then on; --no-calibration does not
  crac calibrate --probabilities validation --labels labelsTr --out calibration.json
  crac apply calibration.json --probabilities predicted --out calibrated

A run is calibrated on its validation part, which the network was not trained on. PROBABILITIES of any other model must
be of cases it was not trained on either; the files are those of crac evaluate. The gain is judged on patients left out:
divided into folds, each patient is measured with a calibrator fitted on the others. Where the likelihood does not show
a gain, the identity is written, which leaves probabilities as they are, unless --force says otherwise. Labels never
change (but for vector's). Beside calibration.json lies calibration.html, a page that shows before and after."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what the command takes."""
    add = parser.add_argument
    add_sources(parser)
    add_fitting_options(parser)
    add("--regions", choices=("volume", "slice"), help="with --probabilities: boundaries in 3-D or in slices")
    names = "with --probabilities: background first, for the page (default: 0 1 ...)"
    add("--class-names", nargs="+", default=[], metavar="NAME", help=names)
    add("--mirror", action="store_true", help="for prediction with --mirror")
    add_model_options(parser, calibration=False)


def add_fitting_options(parser: argparse.ArgumentParser) -> None:
    """What every command that fits calibrators takes."""
    parser.add_argument(
        "--method",
        default="class_region",
        choices=("temperature", "class", "region", "class_region", "class_region_affine", "vector"),
        help="default: %(default)s",
    )
    parser.add_argument(
        "--mask",
        choices=("band", "all"),
        help="voxels to fit on: those within 5 of the foreground, or all (default: all for class_region and "
        "class_region_affine, band for the others)",
    )
    radii = (
        "distances to the predicted boundary that part the regions, e.g. 1 3 (default: 1; class_region_affine: 1 2 4)"
    )
    parser.add_argument("--radii", type=int, nargs="+", metavar="VOXELS", help=radii)
    parser.add_argument("--compare", action="store_true", help="judge every method and write nothing")
    parser.add_argument("--folds", type=int, default=5, metavar="N", help="groups of patients (default: %(default)s)")
    parser.add_argument("--force", action="store_true", help="write it even where no gain is shown")
    parser.add_argument("--anonymous", action="store_true", help="no names of patients and paths in the page")
    parser.add_argument("--json", action="store_true", help="print what was found as JSON")


def run(args: argparse.Namespace) -> int:
    """Fit, judge, write, say."""
    from crac.errors import InputError
    from crac.evaluation.calibrate import of_files, of_run
    from crac.evaluation.folds import of_folds
    from crac.models.folds import Folds
    from crac.models.model import CALIBRATION, Model
    from crac.progress import track

    check_sources(args)
    if args.model is not None:
        own = ("out", "regions", "patient", "orientation", "class_names", "ignore_index")
        refuse(args, "--probabilities; RUN has its own", *own)

        def load(run: Path) -> Model:
            return Model.load(run, args.device, args.checkpoint, args.batch_size, args.mirror, calibrated=False)

        if Folds.at(args.model):
            given = of_folds(args.model, load, args.data, args.checkpoint)
        else:
            given = of_run(args.model, load(args.model), args.data, args.checkpoint)
        use = "crac predict and crac evaluate use it, --no-calibration shows the network as it is"
        return fit(args, given, args.model / CALIBRATION, use, {"run": str(args.model)})
    if args.out is None and not args.compare:
        raise InputError("--out must name the file to write, e.g. --out calibration.json")
    if args.out is not None and args.out.suffix == PAGE:
        raise InputError(f"--out must name a JSON file, beside which the page is written; got {args.out}")
    if args.out is not None and (args.out.is_dir() or not args.out.parent.is_dir()):
        raise InputError(f"--out must be a file in a folder that exists; got {args.out}")
    refuse(args, "RUN; --probabilities are taken as they are", "mirror", "data", *UNLESS_TOLD)
    options = {"orientation": args.orientation, "ignore_index": args.ignore_index, "class_names": args.class_names}
    options |= {"jobs": os.cpu_count() or 1, "track": track}
    given = of_files(args.probabilities, args.labels, args.regions or "volume", args.patient, **options)
    use = f"crac apply {args.out} --probabilities DIR --out DIR uses it"
    source = {"probabilities": str(args.probabilities), "labels": str(args.labels)}
    return fit(args, given, args.out, use, source)


def fit(args: argparse.Namespace, given: Calibratable, out: Path, use: str, source: dict[str, str]) -> int:
    """Fit a calibrator or compare all of them, write it and its page, and say what came of it and how to ``use`` it."""
    from crac.calibration import CALIBRATORS
    from crac.errors import InputError
    from crac.evaluation.calibrate import calibrate, compare_calibrators
    from crac.files import check_writable, finite
    from crac.progress import track
    from crac.report.calibration import write_calibration_page

    regional = [name for name, calibrator in CALIBRATORS.items() if calibrator.by_region]
    if args.radii is not None and not args.compare and args.method not in regional:
        raise InputError(f"--radii is for the methods {', '.join(regional)}; got --method {args.method}")
    calibrator, given = None, replace(given, radii=args.radii)
    if args.compare:
        gains = compare_calibrators(given, mask=args.mask, folds=args.folds, track=track)
    else:
        check_writable(out)
        found = calibrate(given, args.method, mask=args.mask, folds=args.folds, force=args.force, track=track)
        gains, calibrator = {args.method: found.gains}, found.calibrator
        calibrator.save(out)
        told = use.replace(str(out), out.name)  # whoever gets the page has the file elsewhere
        page = write_calibration_page(out.with_suffix(PAGE), found, source, told, anonymous=args.anonymous)
    if args.json:
        plain = {method: [gain._asdict() for gain in own] for method, own in gains.items()}
        written = {} if calibrator is None else {"written": str(out), "page": str(page), "calibrator": calibrator.name}
        print(json.dumps({"gains": finite(plain), **written}, indent=2))
        return 0
    _show(gains)
    if calibrator is None:
        best = min(gains, key=lambda method: gains[method][0].after)
        first = gains[best][0]
        changes = "" if CALIBRATORS[best].keeps_labels else ", which changes labels"
        gained = f"to use it: --method {best}" if first.shown else "it shows no gain over the probabilities as they are"
        print(f"lowest likelihood loss ({first.measure}) on patients left out: {best}{changes}; {gained}")
        return 0
    for note in calibrator.fitted["notes"]:
        print(f"note: {note}")
    if calibrator.name != args.method:
        print(
            f"the identity is written to {out}; --force writes {args.method} all the same, --compare shows the others"
        )
    else:
        print(f"written to {out}; {use}")
    print(f"before and after, patient by patient: {page}")
    return 0


def _show(gains: dict[str, list[Gain]]) -> None:
    from crac.errors import require

    table = require("rich.table").Table(title="patients, each left out of the fit", title_justify="left")
    for heading in ("method", "measure [mask]", "before", "after", "difference, 95 % interval over patients"):
        table.add_column(heading, justify="left" if heading in ("method", "measure [mask]") else "right")
    text = require("rich.text").Text
    for method, own in gains.items():
        for number, gain in enumerate(own):
            mean, low, high = gain.difference
            difference = f"{mean:+.4f}" + ("" if low != low else f" [{low:+.4f}, {high:+.4f}]")
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
