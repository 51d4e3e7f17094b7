"""Starting a kernel without delay."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from triton.runtime import driver

from crac.errors import InputError

Grid = tuple[int, int, int]

_direct: bool | None = None
"""Whether Triton's private launcher can be called as :func:`start` does; unknown before the first try."""


@dataclass(eq=False)
class Plan:
    """Everything about a launch but its tensors; made once for each shape and setting.

    Args:
        grid: Number of programs along each axis.
        numbers: The kernel's arguments between its tensors and its constants.
        constants: Its compile-time constants, and options of the compiler.
    """

    grid: Grid
    numbers: tuple[int | float, ...]
    constants: dict[str, Any]
    compiled: dict[Any, tuple[Any, tuple[Any, ...]]] = field(default_factory=dict)


def current_stream(device: int) -> int:
    """Return the current stream of a GPU, as its driver knows it."""
    try:
        stream: int = driver.active.get_current_stream(device)
    except AttributeError:  # another version of Triton; torch takes longer to answer
        stream = torch.cuda.current_stream(device).cuda_stream
    return stream


def start(kernel: Any, plan: Plan, tensors: Sequence[Tensor | None]) -> None:
    """Launch a kernel; from the second time on without Triton's own look-up.

    That look-up examines every argument anew and takes longer than a small loss runs. What it finds depends on the
    plan and on the tensors' dtypes and alignments alone. The launcher that is called instead is private to Triton:
    where a version of it has another one, every launch goes through the look-up.

    The arguments of the kernel are the tensors, the first not ``None``, then the plan's numbers and its constants.
    """
    global _direct
    assert tensors[0] is not None
    device = tensors[0].get_device()
    if any(one is not None and one.get_device() != device for one in tensors):
        places = ", ".join(sorted({str(one.device) for one in tensors if one is not None}))
        raise InputError(f"the loss must be on the device of the logits, see loss.to(device); got tensors on {places}")
    if _direct is False:
        kernel[plan.grid](*tensors, *plan.numbers, **plan.constants)
        return
    # Addresses, because the launcher asks the driver about every tensor it is given.
    addresses = [None if one is None else one.data_ptr() for one in tensors]
    key = (
        device,
        *[None if one is None else one.dtype for one in tensors],
        *[address is None or address % 16 == 0 for address in addresses],
    )
    found = plan.compiled.get(key)
    if found is not None:
        run, rest = found
        try:
            run(*addresses, *plan.numbers, *rest, stream=current_stream(device))
            _direct = True
            return
        except Exception:
            if _direct:  # it has worked before: this error is about the launch itself
                raise
            _direct = False
    compiled = kernel[plan.grid](*tensors, *plan.numbers, **plan.constants)
    if found is None and compiled is not None:  # the interpreter compiles nothing
        try:
            constants = tuple(plan.constants[name] for name in kernel.arg_names[len(tensors) + len(plan.numbers) :])
            plan.compiled[key] = compiled[plan.grid], constants
        except Exception:
            _direct = False
