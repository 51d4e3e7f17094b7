"""How torch and Python say that memory does not suffice."""

from __future__ import annotations

import torch

__all__ = ["out_of_memory"]


def out_of_memory(error: BaseException) -> bool:
    """Whether an error means that there is too little memory, on any device."""
    # On the CPU torch raises a plain RuntimeError.
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or "allocate memory" in str(error)
