"""From tensors and options to kernel launches."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from math import ceil, prod
from typing import Any, NamedTuple

import torch
from torch import Tensor

from crac.kernels.labels import count_labels
from crac.kernels.loss import fused_loss
from crac.kernels.observe import fused_sums
from crac.kernels.setting import Setting
from crac.kernels.start import Grid, Plan, current_stream, start

TILE = 512
"""Pixels of a tile: four for each thread of the four warps, so that ``float32`` moves in 16-byte pieces."""
WARPS = 4
WIDTHS = (128, 64, 32)
FEW_PROGRAMS = 4096
"""Up to this many, the last of them adds up the others' sums: another kernel would take longer to start."""
COUNT_PROGRAMS = 512
COUNT_BLOCK = 1024
NARROW_FROM = 1 << 21
"""From this many pixels on, wider labels are first narrowed to a byte: a patch is read nine times, from the cache."""


class PreparedLabels(NamedTuple):
    """Labels as the kernels read them, the label they ignore, and the totals of ``count_labels`` if there are any."""

    labels: Tensor
    ignored: int
    totals: Tensor | None


def prepare_labels(labels: Tensor, classes: int, setting: Setting) -> PreparedLabels:
    """Count and narrow the labels where that pays or is needed; otherwise return them as they are."""
    weighted = setting.fit and setting.class_weights is not None and setting.rings is None
    counted = weighted or setting.ignore_index is not None
    narrow = labels.element_size() > 1 and labels.numel() >= NARROW_FROM
    ignored = -1 if setting.ignore_index is None else setting.ignore_index
    if not (counted or narrow):
        return PreparedLabels(labels, ignored, None)
    totals = torch.empty((2, COUNT_PROGRAMS), device=labels.device) if counted else None
    codes = torch.empty(labels.shape, dtype=torch.uint8, device=labels.device) if narrow else None
    plan = _plan_count(
        labels.shape, labels.stride(), classes, ignored, setting.ignore_index is not None, COUNT_PROGRAMS
    )
    with _on(labels):
        start(count_labels, plan, (labels, codes, setting.class_weights, totals))
    return PreparedLabels(labels, ignored, totals) if codes is None else PreparedLabels(codes, 254, totals)


@lru_cache(maxsize=1024)
def _plan_count(
    shape: torch.Size, strides: tuple[int, ...], classes: int, ignored: int, ignore: bool, programs: int
) -> Plan:
    contiguous = torch.empty_strided(shape, strides, device="meta").is_contiguous()
    constants = {"K": classes, "IGNORE": ignore, "CONTIGUOUS": contiguous, "PROGRAMS": programs, "BLOCK": COUNT_BLOCK}
    numbers = (prod(shape), *_extent(shape[1:]), *_with_depth(strides, 1), ignored)
    return Plan((programs, 1, 1), numbers, constants)


def evaluate(
    logits: Tensor,
    prepared: PreparedLabels,
    setting: Setting,
    *,
    value: bool = False,
    gradient: Tensor | None = None,
    upstream: Tensor | None = None,
    skip_unit: bool = False,
) -> Tensor | None:
    """Launch the fused loss; return it if ``value`` is wanted, and write its gradient into ``gradient`` if given.

    ``upstream`` is a scalar that multiplies the gradient, ``None`` for 1. With ``skip_unit``, ``gradient`` holds the
    gradient for 1 already, and is written only if ``upstream`` has another value.
    """
    labels, ignored, totals = prepared
    strides = (logits.stride(), labels.stride(), None if gradient is None else gradient.stride())
    regions = 1 if setting.rho is None else len(setting.rho)
    counted = 0 if totals is None else totals.shape[1]
    plan = _plan_loss(logits.shape, strides, regions, setting.constants, ignored, counted, skip_unit)
    programs = prod(plan.grid) if value else 0
    partials = torch.empty(programs, device=logits.device) if value else None
    counter = _counter(logits) if value and programs <= FEW_PROGRAMS else None
    result = None if counter is None else torch.empty((), device=logits.device)
    tensors = (
        logits, labels, setting.regions, setting.rho, setting.lambda_, setting.scales, setting.class_weights, totals,
        upstream, partials, counter, result, gradient,
    )  # fmt: skip
    with _on(logits):
        start(fused_loss, plan, tensors)
    return partials.sum() if partials is not None and result is None else result


def _counter(tensor: Tensor) -> Tensor | None:
    """Return a zero that kernels of the current stream count up from and leave at zero.

    It is ``None`` while a CUDA graph is recorded: replays may run beside other streams.
    """
    if not tensor.is_cuda:
        return _counter_of(tensor.device, 0)
    if torch.cuda.is_current_stream_capturing():
        return None
    return _counter_of(tensor.device, current_stream(tensor.get_device()))


@lru_cache(maxsize=1024)
def _counter_of(device: torch.device, stream: int) -> Tensor:
    return torch.zeros(1, dtype=torch.int32, device=device)


@lru_cache(maxsize=1024)
def _plan_loss(
    shape: torch.Size,
    strides: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...] | None],
    regions: int,
    constants: Setting,
    ignored: int,
    totals: int,
    skip_unit: bool,
) -> Plan:
    """Plan a launch for logits of a shape, with the strides of logits, labels and gradient."""
    batch, classes, *size = shape
    of_logits, of_labels, of_gradient = strides
    share = 1.0 if totals else 1.0 / (batch * prod(size))
    grid, options = _tiles(shape, regions, constants)
    numbers = (
        *_extent(size),
        *_with_depth(of_logits, 2),
        *_with_depth(of_labels, 1),
        *((0, 0, 0, 0, 0) if of_gradient is None else _with_depth(of_gradient, 2)),
        *(share, share * constants.weight / classes, constants.tolerance, constants.smoothing),
        *(constants.rings or (0.0, 0.0, 0.0, 0.0)),
        ignored,
    )
    own = {"FIT": constants.fit, "SOFT": constants.rings is not None, "SKIP_UNIT": skip_unit, "TOTALS": totals}
    return Plan(grid, numbers, own | options)


def sums(logits: Tensor, labels: Tensor, setting: Setting) -> tuple[Tensor, Tensor]:
    """Return sums of constraint and derivative ``(2, R, K)`` and pixel counts ``(R,)`` of each region, ``float64``."""
    assert setting.rho is not None
    regions, classes = setting.rho.shape
    plan = _plan_sums(logits.shape, logits.stride(), labels.stride(), regions, setting.constants)
    partials = torch.empty((prod(plan.grid), 2 * regions * classes + regions), device=logits.device)
    tensors = (logits, labels, setting.regions, setting.rho, setting.lambda_, setting.scales, partials)
    with _on(logits):
        start(fused_sums, plan, tensors)
    total = partials.sum(0, dtype=torch.float64)
    return total[:-regions].view(2, regions, classes), total[-regions:]


@lru_cache(maxsize=1024)
def _plan_sums(
    shape: torch.Size, strides: tuple[int, ...], label_strides: tuple[int, ...], regions: int, constants: Setting
) -> Plan:
    grid, options = _tiles(shape, regions, constants)
    ignored = -1 if constants.ignore_index is None else constants.ignore_index
    numbers = (*_extent(shape[2:]), *_with_depth(strides, 2), *_with_depth(label_strides, 1))
    return Plan(grid, (*numbers, constants.tolerance, ignored), options)


def _tiles(shape: torch.Size, regions: int, constants: Setting) -> tuple[Grid, dict[str, Any]]:
    """Return the grid of a launch, and its compile-time constants."""
    batch, classes, *size = shape
    depth, height, width = _extent(size)
    solid = len(size) == 3
    patch = (2 * constants.radius + 1) ** len(size)
    bits = patch.bit_length()
    groups = ceil(classes / (32 // bits))
    # The tile width that wastes the fewest pixels; the widest of those that waste equally few.
    across = min(WIDTHS, key=lambda block: -(-width // block) * block)
    down = TILE // across
    options = {
        "K": classes,
        "R": regions,
        "PENALTY": constants.penalty,
        "RADIUS_Z": constants.radius if solid else 0,
        "RADIUS": constants.radius,
        "NEAR": constants.radius if constants.near is None else constants.near,
        "REPLICATE": constants.replicate,
        "IGNORE": constants.ignore_index is not None,
        "TOLERANT": constants.tolerance > 0,
        "FIELDS": ceil(classes / groups),
        "BITS": bits,
        "BLOCK_Y": down,
        "BLOCK_X": across,
        "num_warps": WARPS,
        # Contracted products would move a logit that lies on its target to one side of it.
        "enable_fp_fusion": False,
    }
    return (-(-width // across) * -(-height // down), depth, batch), options


def _extent(size: Sequence[int]) -> tuple[int, ...]:
    """Return depth, height and width; an image is a volume of depth 1."""
    return (1, *size)[-3:]


def _with_depth(strides: tuple[int, ...], leading: int) -> tuple[int, ...]:
    """Return strides with one for the depth, which a 2-D image does not have."""
    return strides if len(strides) == leading + 3 else (*strides[:leading], 0, *strides[leading:])


def _on(tensor: Tensor) -> AbstractContextManager[Any]:
    """Make the tensor's device the current one, on which Triton launches."""
    if tensor.is_cuda and tensor.get_device() != torch.cuda.current_device():
        return torch.cuda.device(tensor.device)
    return nullcontext()
