"""Devices, precision and determinism: what Fabric and torch are told before a training."""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import torch

from crac.errors import InputError, require
from crac.training.config import TrainConfig

if TYPE_CHECKING:
    from lightning.fabric import Fabric

PRECISION = {"fp32": "32-true", "tf32": "32-true", "bf16": "bf16-mixed", "fp16": "16-mixed"}


def check_devices(config: TrainConfig) -> str:
    """Refuse settings that this machine cannot serve; returns the accelerator."""
    processes, size = config.devices * config.nodes, config.batch_size
    if size is not None and size % processes:
        raise InputError(f"batch_size must be a multiple of the {processes} devices it is shared by; got {size}")
    available = torch.cuda.is_available()
    if config.accelerator == "cuda" and not available:
        raise InputError("accelerator: no CUDA device was found; 'auto' or 'cpu' run without one")
    accelerator = ("cuda" if available else "cpu") if config.accelerator == "auto" else config.accelerator
    if accelerator == "cuda" and config.devices > torch.cuda.device_count():
        raise InputError(f"devices must be at most {torch.cuda.device_count()} on this machine; got {config.devices}")
    if config.cuda_graph and (accelerator != "cuda" or processes > 1 or config.precision == "fp16"):
        raise InputError(
            "cuda_graph needs one GPU and a precision other than fp16; "
            f"got {processes} x {accelerator}" + (f" and {config.precision}" if config.precision else "")
        )
    return accelerator


def start_fabric(config: TrainConfig) -> Fabric:
    """Return Fabric on the devices asked for, its processes started."""
    accelerator = check_devices(config)
    processes = config.devices * config.nodes
    require("lightning")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecations inside Lightning, none of them the user's doing
        from lightning.fabric import Fabric
        from lightning.fabric.strategies import DDPStrategy

        fabric = Fabric(
            accelerator=accelerator,
            devices=config.devices,
            num_nodes=config.nodes,
            # Buffers are the same everywhere from the start, and a process without a validation volume, which never
            # runs the network there, would leave the others waiting to be sent theirs.
            strategy=DDPStrategy(broadcast_buffers=False) if processes > 1 else "auto",
            precision=PRECISION[config.precision or "fp32"],
        )
        fabric.launch()
    if processes > 1 and accelerator == "cpu":
        atexit.register(_leave_group)  # as Lightning itself does on GPUs
    return fabric


def _leave_group() -> None:
    """End the connection to the other processes and its threads, which may abort a process that ends before them."""
    gc.collect()  # a wrapped network in a cycle of references holds the connection, and so its threads
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def is_first() -> bool:
    """Whether this process is the only one, or the one of several that reports how the training ended.

    Fabric kills the first process as soon as it sees another leave with an error, so only the first may do so when all
    know of it.
    """
    from lightning.fabric.utilities.rank_zero import rank_zero_only

    return bool(rank_zero_only.rank == 0)


def on_first(fabric: Fabric, action: Callable[[], object]) -> None:
    """Do something on one process only; if it fails, the others leave without a word, so that none waits."""
    problem = None
    if fabric.is_global_zero:
        try:
            action()
        except InputError as error:
            problem = error
    problem = fabric.broadcast(problem)
    if problem is not None:
        raise problem if fabric.is_global_zero else SystemExit(0)


@contextlib.contextmanager
def numerics(config: TrainConfig) -> Iterator[None]:
    """Set torch's global switches for one training, and put them back afterwards."""
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    before = (cudnn.allow_tf32, matmul.allow_tf32, cudnn.benchmark, cudnn.deterministic)
    strict = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    cudnn.allow_tf32 = matmul.allow_tf32 = config.precision != "fp32"
    cudnn.benchmark, cudnn.deterministic = not config.deterministic, config.deterministic
    if config.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        # CUDA has no deterministic form of some operations of every segmentation network, so there it can only warn.
        torch.use_deterministic_algorithms(True, warn_only=torch.cuda.is_available())
    try:
        yield
    finally:
        cudnn.allow_tf32, matmul.allow_tf32, cudnn.benchmark, cudnn.deterministic = before
        torch.use_deterministic_algorithms(strict[0], warn_only=strict[1])


def peak_memory(device: torch.device) -> float:
    """Return the most memory that was in use so far, in GiB: the GPU's, or else that of this process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**30
    import resource  # Unix only

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**30


def memory_format(config: TrainConfig, dims: int, device: torch.device) -> torch.memory_format:
    """Return how images and weights are laid out in memory."""
    # On the CPU torch 2.13 writes past its buffers in the backward pass of narrow transposed convolutions.
    if not config.channels_last or device.type == "cpu":
        return torch.contiguous_format
    return torch.channels_last if dims == 2 else torch.channels_last_3d
