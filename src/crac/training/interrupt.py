"""Ctrl-C as a request: the step under way is finished, the run saved."""

import signal
import sys
import threading
from types import FrameType
from typing import Any, Self


class Interrupt:
    """While active, the first SIGINT or SIGTERM sets ``requested``; the second acts as usual."""

    SIGNALS = (signal.SIGINT, signal.SIGTERM)

    def __init__(self) -> None:
        self.requested = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            # A process that was told to ignore a signal, as workers are Ctrl-C, is left so.
            heard = [number for number in self.SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
            self._before = {number: signal.signal(number, self._handle) for number in heard}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.requested = True
        self.__exit__()
        print("stopping after this step, then saving; once more to stop at once", file=sys.stderr, flush=True)
