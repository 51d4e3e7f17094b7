"""``crac nnunet``: where the trainers for nnU-Net v2 are, and whether nnU-Net finds them."""

from __future__ import annotations

import argparse
import json

from crac.errors import ProblemsError

NAME = "nnunet"
HELP = "trainers for nnU-Net v2: where they are, whether nnU-Net finds them"
EXAMPLE = """examples:
  export nnUNet_extTrainer="$(crac nnunet path)"     tell nnU-Net where the trainers are
  crac nnunet check                                  would a training start?
  nnUNetv2_train 4 2d 0 -tr nnUNetTrainerCRaC        train"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what the command takes."""
    actions = parser.add_subparsers(title="actions", dest="action", required=True, metavar="ACTION")
    path = actions.add_parser(
        "path",
        help="print the folder for nnUNet_extTrainer",
        description="Print the folder that holds the trainers.",
        epilog='example:\n  export nnUNet_extTrainer="$(crac nnunet path)"',
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    path.set_defaults(act=print_path)
    check = actions.add_parser(
        "check",
        help="say whether the set-up works",
        description="Check nnU-Net's folders and version, and let nnU-Net look for each trainer.",
        epilog="example:\n  crac nnunet check",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    check.add_argument("--json", action="store_true", help="print JSON")
    check.set_defaults(act=check_set_up)


def run(args: argparse.Namespace) -> int:
    """Do what the action says."""
    return int(args.act(args))


def print_path(_: argparse.Namespace) -> int:
    """Print the folder of the trainers."""
    from crac.integrations.nnunet import trainers_folder

    print(trainers_folder())
    return 0


def check_set_up(args: argparse.Namespace) -> int:
    """Print what was found; exit code 2 if something is wrong."""
    from crac.integrations.nnunet import TRAINERS
    from crac.integrations.nnunet.check import problems

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
