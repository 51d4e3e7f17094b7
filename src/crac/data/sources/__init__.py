"""Data sets as their owners publish them: one module a layout, each a function from folder to ``Source``."""

from collections.abc import Callable
from pathlib import Path

from crac.data.sources.acdc import read_acdc
from crac.data.sources.flare import read_flare
from crac.data.sources.nnunet import read_nnunet
from crac.data.sources.source import RawCase, Source

__all__ = ["SOURCES", "RawCase", "Source", "read_acdc", "read_flare", "read_nnunet"]

SOURCES: dict[str, Callable[[Path], Source]] = {"acdc": read_acdc, "flare": read_flare, "nnunet": read_nnunet}
"""Name of a layout -> what reads it."""
