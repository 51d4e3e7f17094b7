"""``crac doctor``: what is installed, which device, which extras are missing."""

import argparse
import importlib.metadata
import json
import platform
from typing import Any

from crac._version import __version__
from crac.errors import EXTRA_OF

DISTRIBUTION = {
    "SimpleITK": "simpleitk",
    "PIL": "pillow",
    "markdown_it": "markdown-it-py",
    "ignite": "pytorch-ignite",
    "yaml": "pyyaml",
    "scikit_posthocs": "scikit-posthocs",
}
NAME = "doctor"
HELP = "what is installed, which device, which extras are missing"
EXAMPLE = """examples:
  crac doctor          a report to read, or to paste into a bug report
  crac doctor --json   the same for a script"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what the command takes."""
    parser.add_argument("--json", action="store_true", help="print JSON")


def report() -> dict[str, Any]:
    """Return what ``crac doctor`` prints, as plain data."""
    import torch

    def version(name: str) -> str | None:
        try:
            return importlib.metadata.version(DISTRIBUTION.get(name, name))
        except importlib.metadata.PackageNotFoundError:
            return None

    optional = {name: version(name) for name in sorted(EXTRA_OF)}
    return {
        "crac": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {name: version(name) for name in ("torch", "numpy", "scipy")} | optional,
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "threads": torch.get_num_threads(),
        "missing_extras": sorted({EXTRA_OF[name] for name, found in optional.items() if found is None}),
    }


def run(args: argparse.Namespace) -> int:
    """Print the report."""
    found = report()
    if args.json:
        print(json.dumps(found, indent=2))
        return 0
    packages, missing = found.pop("packages"), found.pop("missing_extras")
    for name, value in found.items():
        print(f"{name:16} {value}")
    print()
    for name, value in packages.items():
        print(f"{name:16} {value or '-- not installed (extra: ' + EXTRA_OF[name] + ')'}")
    install = f"to install what is missing: pip install 'crac[{','.join(missing)}]'"
    print("\n" + (install if missing else "every extra is installed"))
    return 0
