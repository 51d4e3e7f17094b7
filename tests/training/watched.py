"""Which operations a piece of code runs, to see whether it waits for the device."""

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

WAITING = {"_local_scalar_dense", "nonzero", "masked_select", "_unique2", "bincount", "equal", "lift_fresh"}
"""Operations that bring a number from the device, or to it."""


class Watched(TorchDispatchMode):
    """Collects the names of all operations; indexing by a mask counts as ``nonzero``."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()

    def __torch_dispatch__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = func.overloadpacket.__name__  # type: ignore[attr-defined]
        self.seen.add(name)
        if name in ("index", "index_put", "index_put_") and any(
            one is not None and one.dtype == torch.bool for one in args[1]
        ):
            self.seen.add("nonzero")
        return func(*args, **(kwargs or {}))
