"""Batches: the same whatever the cache, reproducible, complete, and true to the store."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.data.layouts import write_nnunet

from crac.data import Augmentation, Batch, Batches, Store, prepare
from crac.errors import InputError

CACHES = ("mmap", "memory", "device")


@pytest.fixture(scope="module")
def uneven(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Volumes of different sizes."""
    folder = tmp_path_factory.mktemp("uneven")
    return prepare("nnunet", write_nnunet(folder / "raw", [(20, 18, 12), (17, 23, 9), (40, 12, 14)]), folder / "store")


def same(first: Batch, second: Batch) -> bool:
    return (
        torch.equal(first.images, second.images)
        and torch.equal(first.labels, second.labels)
        and first.names == second.names
    )


def test_slices_are_the_store_s(cardiac_store: Store) -> None:
    names = list(cardiac_store.cases)
    batches = Batches(cardiac_store, names, batch_size=4, shuffle=False, cache="mmap")
    found = list(batches)
    images = torch.cat([batch.images for batch in found])
    labels = torch.cat([batch.labels for batch in found])
    assert (images.dtype, labels.dtype) == (torch.float32, torch.int64)
    assert images.shape[1:] == (1, 192, 192)
    expected = np.concatenate([np.moveaxis(cardiac_store.image(name), 1, 0) for name in names])
    np.testing.assert_array_equal(images.numpy(), expected.astype(np.float32))
    np.testing.assert_array_equal(labels.numpy(), np.concatenate([cardiac_store.label(name) for name in names]))
    assert [name for batch in found for name in batch.names] == [
        name for name in names for _ in range(cardiac_store.cases[name].prepared_shape[0])
    ]
    assert len(found) == len(batches)


@pytest.mark.parametrize("dims", [2, 3])
@pytest.mark.parametrize("patch", [None, 16])
def test_every_cache_gives_the_same(uneven: Store, dims: int, patch: int | None) -> None:
    size = None if patch is None else (patch,) * dims
    three = [
        Batches(uneven, list(uneven.cases), batch_size=3, dims=dims, patch_size=size, cache=cache, seed=5)
        for cache in CACHES
    ]
    for epoch in (0, 1):
        for batches in three:
            batches.set_epoch(epoch)
        for first, second, third in zip(*three, strict=True):
            assert same(first, second)
            assert same(first, third)
            assert first.images.shape[2:] == first.labels.shape[1:]


def test_whole_volumes_of_different_size_are_padded(uneven: Store) -> None:
    batch = next(iter(Batches(uneven, list(uneven.cases), batch_size=3, dims=3, shuffle=False)))
    assert batch.images.shape == (3, 1, 32, 32, 64)
    for row, name in enumerate(batch.names):
        label = uneven.label(name)
        assert (batch.labels[row] > 0).sum() == (label > 0).sum()
        start = [
            (target - size) // 2 + (target - size) % 2 for target, size in zip((32, 32, 64), label.shape, strict=True)
        ]
        inside = tuple(slice(low, low + size) for low, size in zip(start, label.shape, strict=True))
        np.testing.assert_array_equal(batch.labels[row][inside].numpy(), label)
        np.testing.assert_array_equal(batch.images[row, 0][inside].numpy(), uneven.image(name)[0].astype(np.float32))
        outside = torch.ones((32, 32, 64), dtype=torch.bool)
        outside[inside] = False
        assert batch.images[row, 0][outside].abs().max() == 0


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(size=st.tuples(*[st.integers(1, 45)] * 3), seed=st.integers(0, 99), epoch=st.integers(0, 9))
def test_patches_are_windows_of_their_volume(uneven: Store, size: tuple[int, int, int], seed: int, epoch: int) -> None:
    batches = Batches(uneven, list(uneven.cases), batch_size=3, dims=3, patch_size=size, seed=seed, cache="mmap")
    batches.set_epoch(epoch)
    batch = next(iter(batches))
    assert batch.images.shape == (3, 1, *size)
    for row, name in enumerate(batch.names):
        # Images are noise: the part of the patch that lies inside occurs in the volume exactly once.
        image, patch = uneven.image(name)[0].astype(np.float32), batch.images[row, 0].numpy()
        pads = [max(want - have, 0) for want, have in zip(size, image.shape, strict=True)]
        inside = tuple(slice(pad - pad // 2, want - pad // 2) for pad, want in zip(pads, size, strict=True))
        part = patch[inside]
        windows = np.lib.stride_tricks.sliding_window_view(image, part.shape)
        assert (windows == part).all(axis=(3, 4, 5)).any()


def test_patches_reach_everywhere(uneven: Store) -> None:
    batches = Batches(uneven, ["case0"], batch_size=1, dims=3, patch_size=(11, 17, 19), cache="memory")
    image = uneven.image("case0")[0].astype(np.float32)
    starts = set()
    windows = np.lib.stride_tricks.sliding_window_view(image, (11, 17, 19))
    for epoch in range(60):
        batches.set_epoch(epoch)
        patch = next(iter(batches)).images[0, 0].numpy()
        starts.add(tuple(np.argwhere((windows == patch).all(axis=(3, 4, 5)))[0].tolist()))
    assert starts == {(d, h, w) for d in (0, 1) for h in (0, 1) for w in (0, 1)}


def test_order_depends_on_seed_and_epoch_only(cardiac_store: Store) -> None:
    def epoch(number: int, seed: int = 0, before: int = 0) -> list[Batch]:
        batches = Batches(
            cardiac_store,
            list(cardiac_store.cases),
            batch_size=5,
            seed=seed,
            augment=Augmentation.named("strong", mirror=True),
        )
        for earlier in range(before):
            batches.set_epoch(earlier)
            list(batches)
        batches.set_epoch(number)
        return list(batches)

    reference = epoch(2, before=2)
    assert all(map(same, reference, epoch(2)))
    assert not all(map(same, reference, epoch(3)))
    assert not all(map(same, reference, epoch(2, seed=1)))


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("world_size", [1, 2, 3, 7])
def test_ranks_share_an_epoch(cardiac_store: Store, shuffle: bool, world_size: int) -> None:
    names = list(cardiac_store.cases)
    total = sum(case.prepared_shape[0] for case in cardiac_store.cases.values())
    ranks = [
        Batches(cardiac_store, names, 4, shuffle=shuffle, rank=rank, world_size=world_size)
        for rank in range(world_size)
    ]
    found = [list(batches) for batches in ranks]
    assert [len(batches) for batches in ranks] == [len(each) for each in found]
    images = torch.cat([batch.images for each in found for batch in each])
    if shuffle:
        assert len({len(batches) for batches in ranks}) == 1
        assert total <= len(images) < total + world_size
    else:
        assert len(images) == total
    assert len(torch.unique(images.flatten(1), dim=0)) == total


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cases": ["nobody", "patient001_frame01"]}, "unknown: nobody"),
        ({"cases": []}, "cases must name at least one case"),
        ({"cache": "disk"}, "cache must be one of mmap, memory, device; got 'disk'"),
        ({"dims": 4}, "dims must be one of 2, 3; got 4"),
        ({"seed": -1}, "seed must be a whole number of at least 0; got -1"),
        ({"batch_size": 0}, "batch_size must be a whole number of at least 1; got 0"),
        ({"patch_size": (8, 8, 8)}, r"patch_size must be 2 numbers of at least 1; got \(8, 8, 8\)"),
        ({"patch_size": (8, 0)}, "patch_size must be 2 numbers"),
        ({"rank": 2, "world_size": 2}, "rank must be a whole number of at least 0 and of at most 1; got 2"),
    ],
)
def test_bad_arguments(cardiac_store: Store, options: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Batches(**{"store": cardiac_store, "cases": ["patient001_frame01"]} | options)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("cache", CACHES)
def test_batches_on_a_gpu(cardiac_store: Store, cache: str) -> None:
    options = {"batch_size": 6, "augment": Augmentation.named("strong", mirror=True), "seed": 3}
    on_cpu = Batches(cardiac_store, list(cardiac_store.cases), **options)
    on_gpu = Batches(cardiac_store, list(cardiac_store.cases), cache=cache, device="cuda", **options)
    for first, second in zip(on_cpu, on_gpu, strict=True):
        assert second.images.is_cuda
        assert second.labels.is_cuda
        torch.testing.assert_close(first.images, second.images.cpu(), atol=1e-3, rtol=1e-3)
        assert (first.labels == second.labels.cpu()).float().mean() > 0.9999


def test_a_store_on_disk_may_go_once_it_is_in_memory(tmp_path: Path) -> None:
    store = prepare("nnunet", write_nnunet(tmp_path / "raw", [(9, 9, 9)] * 3), tmp_path / "store")
    batches = Batches(store, list(store.cases), cache="memory")
    expected = list(batches)
    for path in (tmp_path / "store" / "cases").rglob("*.npy"):
        path.unlink()
    assert all(map(same, batches, expected))


@pytest.mark.parametrize("dims", [2, 3])
@pytest.mark.parametrize("cache", CACHES)
def test_foreground_is_oversampled_as_asked(uneven: Store, dims: int, cache: str) -> None:
    """Of tiny patches few show foreground by chance; with a share of 1 all do, of every class, at every place."""
    names, size = list(uneven.cases), (3,) * dims
    shares, seen, places = [], set(), set()
    for foreground in (0.0, 0.5, 1.0):
        batches = Batches(uneven, names, 4, dims, size, cache, foreground=foreground)  # type: ignore[arg-type]
        labels = []
        for epoch in range(40):
            batches.set_epoch(epoch)
            labels += [batch.labels for batch in batches]
        shown = torch.cat(labels).flatten(1)
        shares.append((shown > 0).any(1).double().mean().item())
        seen |= set(shown.unique().tolist())
        places |= set((shown > 0).nonzero()[:, 1].tolist())
    assert shares[2] == 1
    assert shares[1] == pytest.approx((1 + shares[0]) / 2, abs=0.1)
    assert shares[0] < 0.6
    assert seen == set(range(uneven.num_classes))
    assert places == set(range(3**dims))


def test_whole_slices_without_foreground_give_way(uneven: Store) -> None:
    batches = Batches(uneven, list(uneven.cases), foreground=1.0, multiple=5)
    assert all((batch.labels.flatten(1) > 0).any(1).all() for batch in batches)
    assert batches.size == (160, 160)
    plain = Batches(uneven, list(uneven.cases))
    assert not all((batch.labels.flatten(1) > 0).any(1).all() for batch in plain)


def test_oversampling_is_the_same_on_any_number_of_ranks(uneven: Store) -> None:
    names, options = list(uneven.cases), {"patch_size": (8, 8), "foreground": 0.5, "seed": 3}
    (whole,) = Batches(uneven, names, 1000, **options)
    parts = [next(iter(Batches(uneven, names, 1000, rank=rank, world_size=2, **options))) for rank in range(2)]
    count = len(whole.images)
    for rank, part in enumerate(parts):
        own = whole.images[rank::2]
        assert torch.equal(part.images[: len(own)], own), count
