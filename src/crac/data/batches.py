"""Batches of slices or of volume patches, from disk, memory or the device itself; no worker processes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from crac.data.augment import Augmentation
from crac.data.grid import window
from crac.data.store import Store
from crac.errors import InputError, one_of

__all__ = ["CACHES", "Batch", "Batches"]

CACHES = ("mmap", "memory", "device")
MULTIPLE = 32
"""Padded sizes are multiples of what the networks divide by."""


@dataclass(frozen=True)
class Batch:
    """Images ``(B, C, *S)`` float32, labels ``(B, *S)`` int64, and the case each image comes from."""

    images: Tensor
    labels: Tensor
    names: list[str]


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
        seed: Of order, patches and augmentation.
        augment: Off by default.
        drop_last: Leave out an incomplete last batch.
        rank: Which share of each epoch is taken, of ``world_size``. With ``shuffle`` the shares are made equally
            long by repeating a few images, without it every image appears exactly once.
        world_size: Number of shares.
    """

    def __init__(
        self,
        store: Store,
        cases: Sequence[str],
        batch_size: int = 16,
        dims: Literal[2, 3] = 2,
        patch_size: Sequence[int] | None = None,
        cache: Literal["mmap", "memory", "device"] = "memory",
        device: str | torch.device = "cpu",
        shuffle: bool = True,
        seed: int = 0,
        augment: Augmentation | None = None,
        drop_last: bool = False,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        if unknown := [name for name in cases if name not in store.cases]:
            raise InputError(f"cases must be in the store {store.path}; unknown: {', '.join(unknown)}")
        if not cases:
            raise InputError("cases must name at least one case; got none")
        if cache not in CACHES:
            raise one_of("cache", cache, CACHES)
        if dims not in (2, 3):
            raise one_of("dims", dims, (2, 3))
        if batch_size < 1:
            raise InputError(f"batch_size must be at least 1; got {batch_size}")
        if seed < 0:
            raise InputError(f"seed must be at least 0; got {seed}")
        if not 0 <= rank < world_size:
            raise InputError(f"rank must lie in 0..world_size-1; got {rank} of {world_size}")
        if patch_size is not None and (len(patch_size) != dims or min(patch_size) < 1):
            raise InputError(f"patch_size must be {dims} numbers of at least 1; got {tuple(patch_size)}")
        self.store = store
        self.cases = list(cases)
        self.batch_size = batch_size
        self.dims = dims
        self.device = torch.device(device)
        self.shuffle = shuffle
        self.seed = seed
        self.augment = augment
        self.drop_last = drop_last
        self.rank = rank
        self.world_size = world_size
        self.epoch = 0
        self.random_patches = patch_size is not None and shuffle
        self.size = tuple(patch_size) if patch_size is not None else _common_size(store, dims)
        self._samples = _samples(store, self.cases, dims)
        self._cached: dict[str, tuple[Tensor, Tensor]] = {}
        self._stacked: tuple[Tensor, Tensor] | None = None
        if cache != "mmap":
            self._fill_cache(self.device if cache == "device" else torch.device("cpu"), whole=patch_size is None)

    def __len__(self) -> int:
        images = len(self._share(np.arange(len(self._samples))))
        return images // self.batch_size if self.drop_last else math.ceil(images / self.batch_size)

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

    def _share(self, order: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        if self.shuffle and len(order) % self.world_size:
            order = np.resize(order, math.ceil(len(order) / self.world_size) * self.world_size)
        return order[self.rank :: self.world_size]

    def _gather(self, chosen: np.ndarray[Any, Any], places: np.ndarray[Any, Any] | None) -> tuple[Tensor, Tensor]:
        device = next(iter(self._cached.values()))[0].device if self._cached else torch.device("cpu")
        images = torch.zeros((len(chosen), self.store.channels, *self.size), dtype=torch.float16, device=device)
        labels = torch.zeros((len(chosen), *self.size), dtype=torch.uint8, device=device)
        for row, index in enumerate(chosen):
            self._copy(images[row], labels[row], int(index), None if places is None else places[index])
        return images, labels

    def _copy(self, image: Tensor, label: Tensor, index: int, place: np.ndarray[Any, Any] | None) -> None:
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
