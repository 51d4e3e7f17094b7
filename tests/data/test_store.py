"""The store on disk: what it holds, and what is refused."""

import json
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest

from crac.data import Store
from crac.data.records import FORMAT
from crac.errors import InputError, ProblemsError


@pytest.fixture
def copy(cardiac_store: Store, tmp_path: Path) -> Path:
    shutil.copytree(cardiac_store.path, tmp_path / "store")
    return tmp_path / "store"


def test_reading(cardiac_store: Store) -> None:
    store = Store.open(str(cardiac_store.path))
    assert store.manifest == cardiac_store.manifest
    assert (store.name, store.channels, store.class_names[3]) == ("ACDC phantom", 1, "LV")
    again = pickle.loads(pickle.dumps(store))
    np.testing.assert_array_equal(again.image("patient001_frame01"), store.image("patient001_frame01"))
    for read in (store.image, store.label, store.original_label):
        with pytest.raises(InputError, match="case must be one of patient001_frame01"):
            read("nobody")


def test_moments_of_some_cases(cardiac_store: Store) -> None:
    chosen = list(cardiac_store.cases)[:3]
    voxels = np.concatenate([cardiac_store.image(name).astype(np.float64).ravel() for name in chosen])
    mean, deviation = cardiac_store.moments(chosen)
    np.testing.assert_allclose([mean, deviation], [[voxels.mean()], [voxels.std()]], rtol=1e-12)


def test_restoring(cardiac_store: Store) -> None:
    for name, case in cardiac_store.cases.items():
        original = cardiac_store.original_label(name)
        restored = cardiac_store.restore(name, cardiac_store.label(name))
        assert restored.shape == original.shape == case.geometry.shape
        # The phantom is coarser than the prepared grid: outlines come back almost exactly.
        assert (restored == original).mean() > 0.995
        one_hot = np.stack([cardiac_store.label(name) == value for value in range(4)]).astype(np.float32)
        probabilities = cardiac_store.restore(name, one_hot)
        assert (probabilities.argmax(0) == original).mean() > 0.99


def test_a_newer_format_is_refused(copy: Path) -> None:
    manifest = json.loads((copy / "manifest.json").read_text())
    (copy / "manifest.json").write_text(json.dumps({"version": FORMAT + 1, "surprise": manifest}))
    with pytest.raises(
        InputError, match=rf"has store format {FORMAT + 1}, this crac reads up to {FORMAT}: upgrade crac"
    ):
        Store.open(copy)


def test_what_is_no_store(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "absent"):
        with pytest.raises(InputError, match=r"is not a prepared store: it has no manifest\.json"):
            Store.open(path)
    (tmp_path / "manifest.json").mkdir()
    with pytest.raises(InputError, match="cannot be read"):
        Store.open(tmp_path)


def test_missing_and_short_files_are_listed(copy: Path) -> None:
    (copy / "cases" / "patient001_frame01" / "image.npy").unlink()
    label = copy / "cases" / "patient002_frame01" / "label.npy"
    label.write_bytes(label.read_bytes()[:-1])
    with pytest.raises(ProblemsError) as caught:
        Store.open(copy)
    assert len(caught.value.problems) == 2
    assert "image.npy is missing" in caught.value.problems[0]
    assert "the manifest says" in caught.value.problems[1]


def test_a_changed_byte_is_found(copy: Path) -> None:
    path = copy / "cases" / "patient003_frame01" / "label.npy"
    content = bytearray(path.read_bytes())
    content[-7] ^= 1
    path.write_bytes(content)
    store = Store.open(copy)
    with pytest.raises(ProblemsError) as caught:
        store.verify()
    assert caught.value.problems == [f"{path} has another checksum than the manifest"]


def test_another_array_of_the_same_size_is_refused(copy: Path) -> None:
    store = Store.open(copy)
    path = copy / "cases" / "patient001_frame01" / "label.npy"
    label = np.load(path)
    np.save(path, label.view(np.int8))
    with pytest.raises(InputError, match=r"label\.npy must be uint8 .*; got int8"):
        store.label("patient001_frame01")
    path.write_bytes(b"nonsense")
    with pytest.raises(InputError, match=r"label\.npy cannot be read"):
        store.label("patient001_frame01")
