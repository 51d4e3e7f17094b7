"""Progress of long work: a bar on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TypeVar

from crac.errors import require

__all__ = ["track"]

Item = TypeVar("Item")


def track(items: Iterable[Item], description: str, total: int) -> Iterator[Item]:
    """Yield the items, saying on stderr how far it is."""
    if sys.stderr.isatty():
        console = require("rich.console").Console(stderr=True)
        yield from require("rich.progress").track(items, description, total, console=console)
        return
    step = max(1, total // 5)
    for number, item in enumerate(items, start=1):
        if number % step == 0 or number == total:
            print(f"{description}: {number} of {total}", file=sys.stderr, flush=True)
        yield item
