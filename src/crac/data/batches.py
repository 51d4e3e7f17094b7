"""Batches of slices or of volume patches, from disk, memory or the device itself; no worker processes."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from crac.data.augment import Augmentation
from crac.data.grid import window
from crac.data.recipe import Dims
from crac.data.store import Store
from crac.errors import InputError, check_number, one_of

Indices = np.ndarray[Any, Any]
CACHES = ("mmap", "memory", "device")
MULTIPLE = 32
"""Padded sizes are multiples of what the networks divide by."""


@dataclass(frozen=True)
class Batch:
    """Images ``(B, C, *S)`` float32, labels ``(B, *S)`` int64, and the case each image comes from."""

    images: Tensor
    labels: Tensor
    names: list[str]


@dataclass(eq=False)
class Batches:
    """An epoch of batches; iterate over it as often as wanted.

    The order, the patches and the augmentation depend on ``(seed, epoch)`` only: a run that is resumed sees the
    batches it would have seen.

    Args:
        store: Where the cases are.
        cases: Names of the cases to draw from, e.g. ``split.train``.
        batch_size: Images a batch, on each rank.
        dims: 2 for slices ``(H, W)``, 3 for volumes ``(D, H, W)``.
        patch_size: Size of a random patch, ``dims`` numbers; centred without ``shuffle``. None takes whole slices or
            volumes; where these differ in size, all are padded to the largest, rounded up to a multiple of 32.
        cache: ``mmap`` reads the disk, ``memory`` holds all cases in RAM, ``device`` holds them on ``device``.
        device: Where batches end up.
        shuffle: New order each epoch.
        seed: Seed of order, patches and augmentation.
        augment: Off by default.
        rank: Which share of each epoch is taken, of ``world_size``. With ``shuffle`` the shares are made equally
            long by repeating a few images, without it every image appears exactly once.
        world_size: Number of shares.
    """

    store: Store
    cases: Sequence[str]
    batch_size: int = 16
    dims: Dims = 2
    patch_size: Sequence[int] | None = None
    cache: Literal["mmap", "memory", "device"] = "memory"
    device: str | torch.device = "cpu"
    shuffle: bool = True
    seed: int = 0
    augment: Augmentation | None = None
    rank: int = 0
    world_size: int = 1

    def __post_init__(self) -> None:
        if unknown := [name for name in self.cases if name not in self.store.cases]:
            raise InputError(f"cases must be in the store {self.store.path}; unknown: {', '.join(unknown)}")
        if not self.cases:
            raise InputError("cases must name at least one case; got none")
        if self.cache not in CACHES:
            raise one_of("cache", self.cache, CACHES)
        if self.dims not in (2, 3):
            raise one_of("dims", self.dims, (2, 3))
        check_number("batch_size", self.batch_size, least=1, whole=True)
        check_number("seed", self.seed, least=0, whole=True)
        check_number("rank", self.rank, least=0, most=self.world_size - 1, whole=True)
        patch = self.patch_size
        if patch is not None and (len(patch) != self.dims or min(patch) < 1):
            raise InputError(f"patch_size must be {self.dims} numbers of at least 1; got {tuple(patch)}")
        self.device = torch.device(self.device)
        self.epoch = 0
        self.random_patches = patch is not None and self.shuffle
        self.size = tuple(patch) if patch is not None else _common_size(self.store, self.dims)
        self._samples = _samples(self.store, self.cases, self.dims)
        self._cached: dict[str, tuple[Tensor, Tensor]] = {}
        self._stacked: tuple[Tensor, Tensor] | None = None
        if self.cache != "mmap":
            self._fill_cache(self.device if self.cache == "device" else torch.device("cpu"), whole=patch is None)

    def __len__(self) -> int:
        return math.ceil(len(self._share(np.arange(len(self._samples)))) / self.batch_size)

    def set_epoch(self, epoch: int) -> None:
        """Choose which epoch the next iteration is."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[Batch]:
        generator = np.random.default_rng((self.seed, self.epoch))
        order = np.arange(len(self._samples))
        if self.shuffle:
            generator.shuffle(order)
        # One number in 0..1 an axis and sample, drawn for all: a patch does not depend on rank or batch size.
        places = generator.random((len(self._samples), self.dims)) if self.random_patches else None
        share = self._share(order)
        rows = None if self._stacked is None else torch.from_numpy(share).to(self._stacked[0].device)
        for number in range(len(self)):
            part = slice(number * self.batch_size, (number + 1) * self.batch_size)
            chosen = share[part]
            if self._stacked is None or rows is None:
                images, labels = self._gather(chosen, places)
            else:  # all indices are on the device since the epoch began: it is not waited for
                images, labels = (whole.index_select(0, rows[part]) for whole in self._stacked)
            images = images.to(self.device).float()
            labels = labels.to(self.device).long()
            if self.augment is not None:
                seed = np.random.SeedSequence((self.seed, self.epoch, number, self.rank))
                images, labels = self.augment(images, labels, int(seed.generate_state(1)[0]))
            yield Batch(images, labels, [self._samples[index][0] for index in chosen])

    def _share(self, order: Indices) -> Indices:
        if self.shuffle and len(order) % self.world_size:
            order = np.resize(order, math.ceil(len(order) / self.world_size) * self.world_size)
        return order[self.rank :: self.world_size]

    def _gather(self, chosen: Indices, places: Indices | None) -> tuple[Tensor, Tensor]:
        device = next(iter(self._cached.values()))[0].device if self._cached else torch.device("cpu")
        images = torch.zeros((len(chosen), self.store.channels, *self.size), dtype=torch.float16, device=device)
        labels = torch.zeros((len(chosen), *self.size), dtype=torch.uint8, device=device)
        for row, index in enumerate(chosen):
            self._copy(images[row], labels[row], int(index), None if places is None else places[index])
        return images, labels

    def _copy(self, image: Tensor, label: Tensor, index: int, place: Indices | None) -> None:
        """Fill one row of a batch with its window of a case."""
        name, slice_ = self._samples[index]
        source: tuple[Any, Any] = self._cached.get(name) or (self.store.image(name), self.store.label(name))
        # The slice is taken as a range, which leaves a view, and then dropped.
        first = () if slice_ is None else (slice(slice_, slice_ + 1),)
        shape = source[1].shape[-self.dims :]
        starts: list[int | None] = [None] * self.dims
        if place is not None:
            free = [max(have - want, 0) + 1 for have, want in zip(shape, self.size, strict=True)]
            starts = [int(share * count) for share, count in zip(place, free, strict=True)]
        pairs = [window(*axis) for axis in zip(shape, self.size, starts, strict=True)]
        read, fill = tuple(pair[0] for pair in pairs), tuple(pair[1] for pair in pairs)
        for target, array, channels in ((image, source[0], (slice(None),)), (label, source[1], ())):
            part = array[(*channels, *first, *read)]
            # From a memory map straight into the batch, without a copy in between.
            view: Any = target if isinstance(part, Tensor) else target.numpy()
            view[(*channels, *fill)] = part.squeeze(len(channels)) if first else part

    def _fill_cache(self, device: torch.device, whole: bool) -> None:
        if whole:
            images, labels = self._gather(np.arange(len(self._samples)), None)
            self._stacked = images.to(device), labels.to(device)
            return
        for name in self.cases:
            image, label = (np.array(array) for array in (self.store.image(name), self.store.label(name)))
            self._cached[name] = torch.from_numpy(image).to(device), torch.from_numpy(label).to(device)


def _samples(store: Store, cases: Sequence[str], dims: int) -> list[tuple[str, int | None]]:
    if dims == 3:
        return [(name, None) for name in cases]
    return [(name, index) for name in cases for index in range(store.cases[name].prepared_shape[0])]


def _common_size(store: Store, dims: int) -> tuple[int, ...]:
    shapes = {case.prepared_shape[-dims:] for case in store.cases.values()}
    if len(shapes) == 1:
        return shapes.pop()
    return tuple(math.ceil(max(sizes) / MULTIPLE) * MULTIPLE for sizes in zip(*shapes, strict=True))
