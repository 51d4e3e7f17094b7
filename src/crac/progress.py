"""Progress of long work: a bar on a terminal, a plain line now and then elsewhere."""

import sys
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from typing import Any, TypeVar

from crac.errors import require

Item = TypeVar("Item")
Track = Callable[[Iterable[Any], str, int], Iterable[Any]]
"""Yields the items of an iterable and shows how far it is: called with the items, a description and their number."""


def silent(items: Iterable[Item], description: str, total: int) -> Iterable[Item]:
    """Return the items and show nothing; for functions that report progress only when asked to."""
    return items


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


def note(text: str) -> None:
    """Say on stderr what the user should know though the work goes on."""
    print(f"note: {text}", file=sys.stderr, flush=True)


def duration(seconds: float) -> str:
    """Return seconds as hours, minutes and seconds."""
    return str(timedelta(seconds=round(seconds)))
