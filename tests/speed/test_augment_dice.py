"""Augmentation compared in Dice: rivals repeat themselves, stand where ours stands, and are compared by patient."""

from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest
import torch

import augment_dice
from crac.data import Batches, Store

PACKAGES = {"monai": "monai", "nnunet": "batchgeneratorsv2"}


@pytest.mark.parametrize("mirror", [False, True])
@pytest.mark.parametrize("size", [(24, 20), (12, 16, 20)])
@pytest.mark.parametrize("rival", PACKAGES)
def test_a_seed_decides_what_a_rival_does(
    rival: str, size: tuple[int, ...], mirror: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(PACKAGES[rival])
    monkeypatch.setattr(torch, "set_num_threads", lambda _: None)
    augment_dice.prepare(rival, size, mirror, (np.array([0.4]), np.array([0.2])))
    image = np.random.default_rng(0).random((1, *size), dtype=np.float32)
    label = (image[0] > 0.5).astype(np.uint8) * 2
    first, again = ([augment_dice.change(image.copy(), label, seed) for seed in range(20)] for _ in range(2))
    for (images, labels), repeated in zip(first, again, strict=True):
        np.testing.assert_array_equal(images, repeated[0])
        np.testing.assert_array_equal(labels, repeated[1])
        assert images.shape == image.shape
        assert set(np.unique(labels)) <= {0, 2}
    assert len({images.tobytes() for images, _ in first}) > 10
    still = [np.flip(labels, axis) for _, labels in first for axis in range(len(size))]
    assert any((labels == label).all() for labels in still) == mirror


def test_a_rival_changes_the_batches_of_a_training(store: Store, tmp_path: Path) -> None:
    pytest.importorskip("monai")
    settings = {"recipe": "paper", "width": 4, "batch_size": 8, "accelerator": "cpu", "pictures": False}
    options = Namespace(data=store.path, split=None, epochs=1, workers=1, settings=settings)
    runs = {}
    for arm in ("none", "light", "monai"):
        runs[arm] = {"0": augment_dice.trained(arm, 0, tmp_path / arm, options)}
        assert set(runs[arm]["0"]["patients"]) == set(store.split(0).test)
    assert runs["monai"]["0"]["patients"] != runs["none"]["0"]["patients"]


def test_batches_keep_order_and_repeat(store: Store) -> None:
    pytest.importorskip("monai")
    settings = {"batch_size": 5, "seed": 3, "cache": "memory"}
    plain = Batches(store, store.split(0).train, **settings)
    changed = augment_dice.Changed("monai", False, 1, store, store.split(0).train, device="cpu", **settings)
    for epoch in (0, 1):
        plain.set_epoch(epoch)
        changed.set_epoch(epoch)
        first, again, before = list(changed), list(changed), list(plain)
        assert [batch.names for batch in first] == [batch.names for batch in before]
        for one, two, own in zip(first, again, before, strict=True):
            torch.testing.assert_close(one.images, two.images, rtol=0, atol=0)
            assert one.labels.dtype == own.labels.dtype
            assert one.images.shape == own.images.shape
        assert any((one.labels != own.labels).any() for one, own in zip(first, before, strict=True))
    changed.pool.shutdown()
