"""The ``crac`` command: one module a sub-command, no logic of its own.

A command module offers ``NAME``, ``HELP`` (one phrase), ``EXAMPLE`` (shown under its options),
``add_arguments(parser)`` and ``run(args) -> int``. Importing it must be quick and need no extra; the two functions are
only called when the command is.
"""

import argparse
import contextlib
import sys
from collections.abc import Iterator, Sequence

from crac._version import __version__
from crac.cli import (
    apply,
    benchmark,
    calibrate,
    demo,
    doctor,
    evaluate,
    guarantee,
    nnunet,
    predict,
    prepare,
    report,
    train,
)
from crac.errors import EXTRA_OF, InputError, MissingExtraError

MODULES = (prepare, train, calibrate, apply, guarantee, evaluate, report, predict, benchmark, demo, nnunet, doctor)
COMMANDS = {command.NAME: command for command in MODULES}


def build_parser(called: str | None) -> argparse.ArgumentParser:
    """Return the parser, which knows every command by name and the arguments of the one that is called."""
    parser = argparse.ArgumentParser(
        prog="crac",
        description="Train, audit and use segmentation networks whose probabilities can be trusted.",
        epilog="Each command explains itself: crac COMMAND --help",
    )
    parser.add_argument("--version", action="version", version=f"crac {__version__}")
    subparsers = parser.add_subparsers(title="commands", dest="command", required=True, metavar="COMMAND")
    for name, command in COMMANDS.items():
        subparser = subparsers.add_parser(
            name,
            help=command.HELP,
            description=f"{command.HELP[0].upper()}{command.HELP[1:]}.",
            epilog=command.EXAMPLE,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        subparser.set_defaults(refuse=subparser.error)
        if name == called:
            command.add_arguments(subparser)
    return parser


@contextlib.contextmanager
def _extras_named() -> Iterator[None]:
    """Say of a package that an extra brings how to install it."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRA_OF:
            raise
        raise MissingExtraError(package) from error


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; bad input is one sentence on stderr and exit code 2."""
    arguments = sys.argv[1:] if arguments is None else arguments
    called = next((text for text in arguments if not text.startswith("-")), None)
    try:
        with _extras_named():
            args, unknown = build_parser(called).parse_known_args(arguments)
            if unknown:  # parse_args would answer with the usage of crac itself, which shows no option of the command
                args.refuse(f"unrecognized arguments: {' '.join(unknown)}")
            return int(COMMANDS[args.command].run(args))
    except InputError as error:
        print(f"crac {called}: {error}", file=sys.stderr)
        return 2
    except PermissionError as error:  # where there is something to write, an InputError says so
        print(f"crac {called}: no permission to open {error.filename or error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"crac {called}: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output has left; nothing more to say
        return 141
