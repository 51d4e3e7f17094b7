"""``crac demo``: see the whole thing work, in minutes, on a laptop."""

import argparse
import contextlib
import json
import sys
from pathlib import Path

from crac.errors import check_number

NAME = "demo"
HELP = "train and audit two small networks on made-up patients"
EXAMPLE = """example:
  crac demo --out demo      then open demo/index.html

Needs no data and no GPU: it makes patients, trains one network as most are and one with crac, calibrates both, fits the
promises of the second, measures all on held-out patients and writes one page. What is printed is what was measured."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what the command takes."""
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder to make")
    parser.add_argument("--seed", type=int, default=0, help="of patients and weights (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print what was measured as JSON")


def run(args: argparse.Namespace) -> int:
    """Run the demo and say where to look."""
    check_number("--seed", args.seed, least=0, whole=True)
    from crac.demo import DemoSettings, run_demo

    with contextlib.redirect_stdout(sys.stderr):  # trainings show their epochs
        found = run_demo(args.out, DemoSettings(seed=args.seed), lambda line: print(line, flush=True))
    print(json.dumps(found, indent=2) if args.json else found["verdict"])
    return 0
