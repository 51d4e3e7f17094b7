"""``crac nnunet``: where the trainers for nnU-Net v2 are, and whether nnU-Net finds them."""

import argparse
import json
from typing import Any

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
    path = "print the folder that holds the trainers, for nnUNet_extTrainer"
    check = "check nnU-Net's folders and version, and let nnU-Net look for each trainer"
    form: dict[str, Any] = {"epilog": EXAMPLE, "formatter_class": argparse.RawDescriptionHelpFormatter}
    actions.add_parser("path", help=path, **form)
    parser = actions.add_parser("check", help=check, **form)
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
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
