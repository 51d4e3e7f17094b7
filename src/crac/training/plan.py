"""Patches and batches chosen from the volumes and the memory, with the reason.

The rule is nnU-Net's: a patch is as large as the median volume, then its sides shrink, the one that covers most of the
volume first, until a batch of two fits into memory; the batch grows with the memory left over, up to a twentieth of all
voxels. An epoch has as many patches as fill the volumes. A step is expected to need

    images x voxels x (activations + SCRATCH x width + PER_CLASS x classes) + 16 bytes a weight

where the activations are the bytes a voxel that torch keeps for the backward pass, counted on a network without memory,
and 16 bytes are the weight itself, its gradient and Adam's two means.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor

from crac.data import Store
from crac.models.card import ModelCard, check_patch
from crac.networks import halvings
from crac.training.config import PAPER, PLANNED, TrainConfig
from crac.training.engine import check_devices

Size = tuple[int, ...]
Strides = tuple[Size, ...] | None

GIB = 2**30
SHARE = 0.8
"""Share of the free memory that a step may fill."""

MOST = {"cuda": 16 * GIB, "cpu": 2 * GIB}
"""Beyond it, larger patches of volumes mean slower steps rather than better networks."""

BATCH = 16
"""Images of one step, at most; nothing is gained by more."""

LEAST_BATCH = 2
LEAST_STEPS = 16
"""Steps that an epoch has at least, where there are few volumes."""

OF_ALL_VOXELS = 0.05
SCRATCH = 32
PER_CLASS = 24
PER_WEIGHT = 16
SMALLEST = 8
"""No side of a patch is made smaller."""


@dataclass(frozen=True)
class Cost:
    """What a network needs in a step.

    Args:
        stride: What it divides each side of its images by.
        voxel: Bytes for each voxel of an image.
        fixed: Bytes whatever the images.
    """

    stride: Size
    voxel: float
    fixed: float

    def bytes(self, images: int, size: Sequence[int]) -> float:
        """Return what a step on so many images of this size needs."""
        padded = (math.ceil(side / stride) * stride for side, stride in zip(size, self.stride, strict=True))
        return self.fixed + images * math.prod(padded) * self.voxel

    def batch(self, size: Sequence[int], budget: float, devices: int, most: int) -> int:
        """Return how many images of this size a step can have where each of several devices has so many bytes."""
        fitting = int((budget - self.fixed) / (self.bytes(1, size) - self.fixed)) * devices
        return max(least_batch(devices), min(fitting, most) // devices * devices)


@dataclass(frozen=True)
class Plan:
    """What was chosen: patches of one size, images a step, patches of a volume an epoch, and the network's strides."""

    patch_size: Size
    batch_size: int
    patches: int
    strides: Strides
    needed: float


def least_batch(devices: int) -> int:
    """Return the smallest batch that is planned for: two images, and one on each device."""
    return math.ceil(LEAST_BATCH / devices) * devices


def choose(
    median: Size,
    volumes: int,
    budget: float,
    strides_for: Callable[[Size], Strides],
    cost: Callable[[Strides], Cost],
    *,
    patch_size: Size | None = None,
    batch_size: int | None = None,
    devices: int = 1,
) -> Plan:
    """Choose patch and batch for volumes.

    Args:
        median: Voxels of the median volume along ``(D, H, W)``.
        volumes: How many there are.
        budget: Bytes that a step may need on each device.
        strides_for: Strides of the network for patches of a size.
        cost: What the network with these strides needs.
        patch_size: Given by the user.
        batch_size: Given by the user, over all devices together.
        devices: How many share a batch.
    """
    least = batch_size or least_batch(devices)
    patch, strides = patch_size or median, strides_for(patch_size or median)
    if patch_size is None:
        patch = tuple(math.ceil(side / by) * by for side, by in zip(patch, cost(strides).stride, strict=True))
        while cost(strides).bytes(least // devices, patch) > budget:
            able = [axis for axis, by in enumerate(cost(strides).stride) if patch[axis] - by >= SMALLEST]
            if not able:
                break
            widest = max(able, key=lambda axis: patch[axis] / median[axis])
            smaller = tuple(
                side - by * (axis == widest)
                for axis, (side, by) in enumerate(zip(patch, cost(strides).stride, strict=True))
            )
            strides = strides_for(smaller)
            patch = tuple(side // by * by for side, by in zip(smaller, cost(strides).stride, strict=True))
    own = cost(strides)
    if batch_size is None:
        seen = int(OF_ALL_VOXELS * volumes * math.prod(median) / math.prod(patch))
        batch_size = own.batch(patch, budget, devices, most=min(seen, BATCH))
    patches = max(round(math.prod(median) / math.prod(patch)), math.ceil(LEAST_STEPS * batch_size / volumes))
    return Plan(patch, batch_size, patches, strides, own.bytes(math.ceil(batch_size / devices), patch))


def planned(config: TrainConfig, store: Store, volumes: int | None = None) -> tuple[TrainConfig, str]:
    """Return the settings with precision, patch, batch and strides filled in where they were left open, and the reason.

    ``volumes`` is how many train, all of the store by default. The paper's recipe leaves nothing open. In 2-D only
    precision and batch are: 16 whole slices, or as many as fit.
    """
    accelerator, devices = check_devices(config), config.devices * config.nodes
    if config.precision is None:
        bf16 = accelerator == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
        config = config.model_copy(update={"precision": "bf16" if bf16 else "fp32"})
    dims = config.dims or store.manifest.dims
    left_open = [name for name in (PLANNED if dims == 3 else ("batch_size",)) if getattr(config, name) is None]
    if config.recipe == "paper" or not left_open:
        # A batch size of null in a file wins over the recipe's, and still has to be a number.
        return config.model_copy(update={"batch_size": config.batch_size or PAPER["batch_size"]}), ""
    check_patch(config.patch_size, dims)
    cases = store.cases.values()
    shapes = torch.tensor([case.prepared_shape for case in cases])
    median = tuple(shapes.median(0).values.tolist())
    spacing = torch.tensor([case.prepared_spacing for case in cases]).median(0).values.tolist()
    free = free_memory(accelerator)
    budget = SHARE * free if config.memory is None else config.memory * GIB

    def strides_for(size: Size) -> Strides:
        return config.strides if config.strides or config.backbone != "nnunet" else tuple(halvings(size, spacing))

    @lru_cache
    def cost(strides: Strides) -> Cost:
        of_network = config.backbone, config.width, dims, None, config.deep_supervision, strides
        return step_cost(ModelCard.of(store, *of_network), config)

    if dims == 2:
        size = config.patch_size or tuple(shapes.max(0).values[1:].tolist())
        batch = cost(config.strides).batch(size, budget, devices, most=BATCH)
        reason = f"{batch} slices a step, which is what fits into {budget / GIB:.3g} GiB" if batch < BATCH else ""
        return config.model_copy(update={"batch_size": batch}), reason
    if config.memory is None:
        budget = min(budget, MOST[accelerator])
    plan = choose(
        median, volumes or len(cases), budget, strides_for, cost,
        patch_size=config.patch_size, batch_size=config.batch_size, devices=devices,
    )  # fmt: skip
    config = config.model_copy(update={name: getattr(plan, name) for name in left_open})
    reason = (
        f"patches of {_sides(plan.patch_size)} voxels, {plan.batch_size} a step, {config.patches} of each volume an "
        f"epoch: the median volume has {_sides(median)} voxels of {_sides(spacing)} mm, and a step is estimated at "
        f"{plan.needed / GIB:.2g} of {budget / GIB:.3g} GiB allowed ({free / GIB:.3g} GiB are free); "
        "patch_size, batch_size, patches and memory change that"
    )
    return config, reason


def step_cost(card: ModelCard, config: TrainConfig) -> Cost:
    """Return what a training step of a network needs, without taking one."""
    with torch.device("meta"):
        network = card.build().train()
    network.least = network.stride  # what is counted below is divided by the voxels of a small image
    size = [2 * stride for stride in network.stride]
    kept: dict[int, torch.UntypedStorage] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        kept[storage._cdata] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        network(torch.empty(1, len(card.channel_names), *size, device="meta"))
    weights = {weight.untyped_storage()._cdata for weight in network.parameters()}
    saved = sum(storage.nbytes() for key, storage in kept.items() if key not in weights) / math.prod(size)
    half = 0.5 if config.precision in ("bf16", "fp16") else 1.0
    views = 2 if config.method == "bwcr" else 1
    voxel = views * (half * (saved + SCRATCH * card.width) + PER_CLASS * len(card.class_names))
    return Cost(network.stride, voxel, PER_WEIGHT * sum(weight.numel() for weight in network.parameters()))


def free_memory(accelerator: str) -> float:
    """Return the bytes that are free on the first GPU, or in the machine."""
    if accelerator == "cuda":
        return float(torch.cuda.mem_get_info()[0])
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return next(float(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):  # not Linux
        return float(MOST["cpu"] / SHARE)


def _sides(sides: Sequence[float]) -> str:
    return " x ".join(f"{side:.3g}" if isinstance(side, float) else str(side) for side in sides)
