"""Batches of slices or of volume patches, from disk, memory or the device itself; no worker processes."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from crac.data.augment import NUMBERS, Augmentation
from crac.data.grid import window
from crac.data.recipe import Dims
from crac.data.store import Store
from crac.errors import InputError, check_number, one_of

Indices = np.ndarray[Any, Any]
CACHES = ("mmap", "memory", "device")
MULTIPLE = 32
"""Padded sizes are multiples of what the networks divide by."""

PLACES = 256
"""Foreground voxels of a class and sample that patches are laid around."""


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
        foreground: Share of the images of a shuffled epoch that are sure to show foreground: a slice without any gives
            way to one that has some, a patch is laid around a voxel of a random class.
        patches: How often every slice or volume appears in an epoch.
        multiple: Whole slices or volumes are padded to sizes that it divides.
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
    foreground: float = 0.0
    multiple: int = 1
    patches: int = 1
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
        check_number("patches", self.patches, least=1, whole=True)
        check_number("seed", self.seed, least=0, whole=True)
        check_number("foreground", self.foreground, least=0, most=1)
        check_number("rank", self.rank, least=0, most=self.world_size - 1, whole=True)
        patch = self.patch_size
        if patch is not None and (len(patch) != self.dims or min(patch) < 1):
            raise InputError(f"patch_size must be {self.dims} numbers of at least 1; got {tuple(patch)}")
        self.device = torch.device(self.device)
        self.epoch = 0
        self.random_patches = patch is not None and self.shuffle
        self.size = tuple(patch) if patch is not None else common_size(self.store, self.dims, self.multiple)
        self._samples = _samples(self.store, self.cases, self.dims)
        self._foreground = self._find_foreground() if self.foreground and self.shuffle else {}
        self._cached: dict[str, tuple[Tensor, Tensor]] = {}
        self._stacked: tuple[Tensor, Tensor] | None = None
        if self.cache != "mmap":
            self._fill_cache(self.device if self.cache == "device" else torch.device("cpu"), whole=patch is None)

    def __len__(self) -> int:
        return math.ceil(len(self._share(np.arange(self._images))) / self.batch_size)

    @property
    def _images(self) -> int:
        return len(self._samples) * self.patches

    def set_epoch(self, epoch: int) -> None:
        """Choose which epoch the next iteration is."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[Batch]:
        generator = np.random.default_rng((self.seed, self.epoch))
        order = np.arange(self._images)
        if self.shuffle:
            generator.shuffle(order)
        # Drawn for the whole epoch: what is shown does not depend on rank or batch size.
        shown, starts = self._choose(generator)
        own = self._share(order)
        share = shown[own]
        starts = None if starts is None else starts[own]
        numbers = None
        if self.augment is not None:
            drawn = np.random.default_rng((self.seed, self.epoch, 1)).random((len(order), NUMBERS), dtype=np.float32)
            numbers = torch.from_numpy(drawn[own]).to(self.device)
        rows = None if self._stacked is None else torch.from_numpy(share).to(self._stacked[0].device)
        for number in range(len(self)):
            part = slice(number * self.batch_size, (number + 1) * self.batch_size)
            chosen = share[part]
            if self._stacked is None or rows is None:
                images, labels = self._gather(chosen, None if starts is None else starts[part])
            else:  # all indices are on the device since the epoch began: it is not waited for
                images, labels = (whole.index_select(0, rows[part]) for whole in self._stacked)
            images = images.to(self.device).float()
            labels = labels.to(self.device).long()
            if self.augment is not None and numbers is not None:
                images, labels = self.augment(images, labels, numbers[part])
            yield Batch(images, labels, [self._samples[index][0] for index in chosen])

    def _share(self, order: Indices) -> Indices:
        if self.shuffle and len(order) % self.world_size:
            order = np.resize(order, math.ceil(len(order) / self.world_size) * self.world_size)
        return order[self.rank :: self.world_size]

    def _find_foreground(self) -> dict[int, list[Indices]]:
        """Return places ``(N, dims)`` of each class but the background, by the samples that have any."""
        found = {}
        for index, (name, slice_) in enumerate(self._samples):
            label = self.store.label(name)
            label = np.asarray(label if slice_ is None else label[slice_])
            places = np.flatnonzero((label != 0) & (label != self.store.ignore_index))
            classes = label.ravel()[places]
            if len(places):
                own = (places[classes == number] for number in np.unique(classes))
                # A few hundred places of each class are as good as all.
                spread = (place[:: -(-len(place) // PLACES)] for place in own)
                found[index] = [np.stack(np.unravel_index(place, label.shape), 1) for place in spread]
        return found

    def _choose(self, generator: np.random.Generator) -> tuple[Indices, Indices | None]:
        """Return which sample each image of an epoch is of, and where its patch begins if patches are random."""
        samples = np.arange(self._images) % len(self._samples)
        starts = None
        if self.random_patches:
            places = generator.random((len(samples), self.dims))
            shapes = np.array([self.store.cases[name].prepared_shape[-self.dims :] for name, _ in self._samples])
            last = np.maximum(shapes - self.size, 0)
            starts = (places * (last[samples] + 1)).astype(np.int64)
        if not self._foreground:
            return samples, starts
        having = np.array(list(self._foreground))
        chance = generator.random((len(samples), 4 + self.dims))
        for image in np.flatnonzero(chance[:, 0] < self.foreground):
            _, other, which, where, *place = chance[image]
            if samples[image] not in self._foreground:
                samples[image] = having[int(other * len(having))]
            if starts is not None:
                classes = self._foreground[samples[image]]
                voxels = classes[int(which * len(classes))]
                voxel = voxels[int(where * len(voxels))]
                # All windows inside the sample that hold the voxel are equally likely.
                high = np.minimum(voxel, last[samples[image]])
                low = np.clip(voxel - np.array(self.size) + 1, 0, high)
                starts[image] = low + (np.array(place) * (high - low + 1)).astype(np.int64)
        return samples, starts

    def _gather(self, chosen: Indices, starts: Indices | None) -> tuple[Tensor, Tensor]:
        device = next(iter(self._cached.values()))[0].device if self._cached else torch.device("cpu")
        images = torch.zeros((len(chosen), self.store.channels, *self.size), dtype=torch.float16, device=device)
        labels = torch.zeros((len(chosen), *self.size), dtype=torch.uint8, device=device)
        for row, index in enumerate(chosen):
            self._copy(images[row], labels[row], int(index), None if starts is None else starts[row])
        return images, labels

    def _copy(self, image: Tensor, label: Tensor, index: int, start: Indices | None) -> None:
        """Fill one row of a batch with its window of a case, centred unless it is told where to begin."""
        name, slice_ = self._samples[index]
        source: tuple[Any, Any] = self._cached.get(name) or (self.store.image(name), self.store.label(name))
        # The slice is taken as a range, which leaves a view, and then dropped.
        first = () if slice_ is None else (slice(slice_, slice_ + 1),)
        shape = source[1].shape[-self.dims :]
        starts: list[int | None] = [None] * self.dims if start is None else start.tolist()
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


def common_size(store: Store, dims: int, multiple: int) -> tuple[int, ...]:
    """Return what whole slices or volumes of a store are padded to, so that they make batches."""
    shapes = {case.prepared_shape[-dims:] for case in store.cases.values()}
    step = multiple if len(shapes) == 1 else math.lcm(multiple, MULTIPLE)
    return tuple(math.ceil(max(sizes) / step) * step for sizes in zip(*shapes, strict=True))
