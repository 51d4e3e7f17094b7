"""The ``crac`` command: one module per sub-command, no logic of its own.

A command module offers ``add_parser(subparsers)``, which must not import anything heavy, and
``run(args) -> int``, which may.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from crac._version import __version__
from crac.cli import benchmark, demo, doctor, evaluate, nnunet, predict, prepare, train
from crac.errors import InputError

COMMANDS = (prepare, train, evaluate, predict, benchmark, demo, nnunet, doctor)


def build_parser() -> argparse.ArgumentParser:
    """The parser with every sub-command attached."""
    parser = argparse.ArgumentParser(
        prog="crac",
        description="Train, audit and use segmentation networks whose probabilities can be trusted.",
        epilog="Each command explains itself: crac COMMAND --help",
    )
    parser.add_argument("--version", action="version", version=f"crac {__version__}")
    subparsers = parser.add_subparsers(title="commands", dest="command", required=True, metavar="COMMAND")
    for command in COMMANDS:
        command.add_parser(subparsers)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; bad input is one sentence on stderr and exit code 2."""
    args = build_parser().parse_args(arguments)
    try:
        return int(args.run(args))
    except InputError as error:
        print(f"crac {args.command}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"crac {args.command}: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output has left; nothing more to say
        return 141


if __name__ == "__main__":
    sys.exit(main())
