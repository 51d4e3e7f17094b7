"""``crac report``: one page that shows a result, or compares several."""

import argparse
from pathlib import Path

NAME = "report"
HELP = "one page that shows results of crac evaluate, or compares them"
EXAMPLE = """examples:
  crac report audit --out page.html
  crac report audit-ce audit-crac --names "cross-entropy" CRaC --out compared.html
  crac report audit --out page.html --anonymous      no images, no names

The page is one file that needs no network: open it, print it, mail it. The first DIR is what the others are compared
with, on the patients they have in common."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what the command takes."""
    parser.add_argument("folders", nargs="+", type=Path, metavar="DIR", help="folder written by crac evaluate")
    parser.add_argument("--out", type=Path, required=True, metavar="PAGE.html", help="file to write")
    parser.add_argument("--names", nargs="+", metavar="NAME", help="what the page calls each DIR (default: its name)")
    parser.add_argument("--title", default="", help="heading of the page")
    parser.add_argument("--anonymous", action="store_true", help="leave out images, names of patients and paths")


def run(args: argparse.Namespace) -> int:
    """Read the folders and write the page."""
    from crac.errors import InputError
    from crac.files import write_text
    from crac.report.folder import page_of

    names = args.names or [""] * len(args.folders)
    if len(names) != len(args.folders):
        raise InputError(f"--names must be {len(args.folders)} names, one for each DIR; got {len(names)}")
    if args.out.is_dir():
        raise InputError(f"--out must be a file; {args.out} is a folder")
    write_text(args.out, page_of(args.folders, names, title=args.title, anonymous=args.anonymous))
    print(f"written to {args.out}")
    return 0
