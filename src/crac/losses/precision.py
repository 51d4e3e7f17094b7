"""A module whose buffers keep their precision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

from torch import Tensor, nn

__all__ = ["FixedPrecision"]


class FixedPrecision(nn.Module):
    """A module whose buffers move to other devices with it but never change their dtype.

    ``network.half()`` must not round the multipliers of a loss inside the network: a multiplier in ``float16`` is
    another multiplier.
    """

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        before = dict(self._buffers)
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for name, buffer in before.items():
            after = self._buffers[name]
            if buffer is not None and after is not None and after.dtype != buffer.dtype:
                self._buffers[name] = buffer.to(after.device)
        return self
