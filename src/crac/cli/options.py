"""Options that several commands share."""

import argparse
from pathlib import Path

UNLESS_TOLD = {"checkpoint": "best", "device": "auto", "batch_size": 16}
"""How a model is loaded by default."""


def add_sources(parser: argparse.ArgumentParser) -> None:
    """What a calibrator or a guarantee is fitted on: a run, or files of any model."""
    add = parser.add_argument
    add("model", nargs="?", type=Path, metavar="RUN", help="folder of a run (crac train)")
    add("--probabilities", type=Path, metavar="DIR", help="folder of class probabilities of cases left out of training")
    add("--labels", type=Path, metavar="DIR", help="folder of their NIfTI label maps")
    add("--out", type=Path, metavar="FILE.json", help="file to write, with --probabilities")
    add(
        "--patient",
        metavar="REGEX",
        help="with --probabilities: part of a file's name that says whose it is, as in 'patient[0-9]+' "
        "(default: each volume is of another patient)",
    )
    add("--orientation", choices=("stored", "ras"), help="with --probabilities: of nnU-Net's .npz without their .pkl")
    add_ignore_index(parser)
    add("--data", type=Path, metavar="STORE", help="RUN's data, if it has moved")


def refuse(args: argparse.Namespace, why: str, *names: str) -> None:
    """Refuse options that are given where they would change nothing; ``why`` says with what they go."""
    from crac.errors import InputError

    values = {name: getattr(args, name) for name in names}
    flags = [
        f"--{name.replace('_', '-')}"
        for name, value in values.items()
        if value is not False and value not in (None, [], UNLESS_TOLD.get(name))
    ]
    if flags:
        raise InputError(f"{', '.join(flags)} go{'es' * (len(flags) == 1)} with {why}")


def add_ignore_index(parser: argparse.ArgumentParser) -> None:
    """Which label files mark voxels with that nobody has labelled; a run knows it from its data set."""
    parser.add_argument(
        "--ignore-index",
        type=int,
        metavar="N",
        help="with --probabilities: label of voxels that nobody has labelled and that count nowhere, "
        "as 'ignore' in nnU-Net's dataset.json (default: there is none)",
    )


def check_sources(args: argparse.Namespace) -> None:
    """Refuse neither and both of the sources, and a checkpoint in the place of a run."""
    from crac.errors import InputError

    if (args.model is None) == (args.probabilities is None) or (args.probabilities is None) != (args.labels is None):
        raise InputError("give either RUN, or both --probabilities and --labels")
    if args.model is not None and args.model.is_file():
        raise InputError(f"RUN must be the folder of a run, which names its validation part; got the file {args.model}")


def add_mirror(parser: argparse.ArgumentParser) -> None:
    """Average over mirrored versions of the images; in 0.1.0 the option was called --tta, which still works."""
    parser.add_argument(
        "--mirror", "--tta", action="store_true", help="average over mirrored versions of each image (once --tta)"
    )


def add_model_options(parser: argparse.ArgumentParser, calibration: bool = True) -> None:
    """How a model is loaded and run, and whether its calibration is used."""
    parser.set_defaults(**UNLESS_TOLD)
    parser.add_argument("--checkpoint", choices=("best", "last"), help="default: %(default)s")
    parser.add_argument("--device", help="auto, cpu, cuda, cuda:1, ... (default: %(default)s)")
    parser.add_argument("--batch-size", type=int, help="slices or windows at a time (default: %(default)s)")
    if calibration:
        parser.add_argument(
            "--no-calibration", action="store_true", help="the network as it is, without calibration.json"
        )
