"""Losses fused into one GPU kernel, with the results of the eager path; used on CUDA without being asked for.

``CRAC_KERNEL=off`` turns the kernels off, to compare. ``CRAC_KERNEL=force`` uses them on any device; on a CPU that
needs Triton's interpreter (``TRITON_INTERPRET=1``) and serves tests only.
"""

import importlib.util
import os

import torch
from torch import Tensor

from crac.errors import one_of
from crac.kernels.setting import Setting

__all__ = ["Setting", "fused_loss", "fused_sums", "load", "usable"]

MODES = ("auto", "off", "force")
mode = os.environ.get("CRAC_KERNEL", "auto")
if mode not in MODES:
    raise one_of("CRAC_KERNEL", mode, MODES)

INSTALLED = importlib.util.find_spec("triton") is not None
MOST_CLASSES = 64
MOST_NEIGHBOURS = 31
"""Labels of a patch: their counts have five bits."""
LOGITS = (torch.float32, torch.bfloat16, torch.float16)
LABELS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


def usable(logits: Tensor, labels: Tensor, radius: int, ignore_index: int | None) -> bool:
    """Return whether a kernel takes this batch, ``labels`` being ``(B, *S)``."""
    batch, classes, *size = logits.shape
    return (
        INSTALLED
        and mode != "off"
        and (mode == "force" or logits.is_cuda)
        and logits.device == labels.device
        and logits.dtype in LOGITS
        and labels.dtype in LABELS
        and classes <= MOST_CLASSES
        and (2 * radius + 1) ** len(size) <= MOST_NEIGHBOURS
        and (ignore_index is None or not 0 <= ignore_index < classes)
        and 0 < labels.numel() < 2**31
        and max(batch, size[0]) < 2**16
        # Places within a plane are counted in 32 bits.
        and size[-2] * logits.stride(-2) + size[-1] * logits.stride(-1) < 2**31
        and size[-2] * labels.stride(-2) + size[-1] * labels.stride(-1) < 2**31
    )


def load() -> None:
    """Import Triton where it will be needed, so that no program being traced has to."""
    if INSTALLED and mode != "off" and (mode == "force" or torch.cuda.is_available()):
        importlib.import_module("crac.kernels.autograd")


def fused_loss(logits: Tensor, labels: Tensor, setting: Setting) -> Tensor:
    """Return the loss that ``setting`` describes, a ``float32`` scalar, differentiable in the logits.

    Args:
        logits: ``(B, K, *S)`` in ``float32``, ``bfloat16`` or ``float16``, any strides.
        labels: Integers ``(B, *S)``, any strides. One that is no class makes the loss NaN: a kernel cannot raise an
            error without waiting for the device.
        setting: Which loss.
    """
    from crac.kernels.autograd import fused

    return fused(logits, labels, setting)


def fused_sums(logits: Tensor, labels: Tensor, setting: Setting) -> tuple[Tensor, Tensor]:
    """Return sums of constraint and derivative ``(2, R, K)`` and pixel counts ``(R,)``, for the outer step."""
    from crac.kernels.launch import sums

    return sums(logits, labels, setting)
