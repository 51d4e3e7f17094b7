"""The store on disk: what is refused, and that a damaged manifest can do no harm."""

import json
import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

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


def places(value: Any, path: tuple = ()) -> list[tuple]:
    """The path of every value in nested JSON."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, inner in items for place in places(inner, (*path, key)))]


def use(path: Path) -> None:
    """What a program does with a store."""
    store = Store.open(path)
    name = next(iter(store.cases))
    store.image(name)
    store.original_label(name)
    store.restore(name, store.label(name))
    store.split(seed=1)
    store.verify()


anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from([0, -1, 2**63, 1e308, "../../x"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=st.data())
def test_a_mutated_manifest_is_read_or_refused(cardiac_store: Store, tmp_path: Path, data: st.DataObject) -> None:
    if not (tmp_path / "cases").exists():
        (tmp_path / "cases").symlink_to(cardiac_store.path / "cases")
    manifest = json.loads((cardiac_store.path / "manifest.json").read_text())
    # The first case stands for all; the rest would only dilute the changes.
    manifest["cases"] = dict(list(manifest["cases"].items())[:1])
    *path, last = data.draw(st.sampled_from(places(manifest)[1:]))
    inner = manifest
    for key in path:
        inner = inner[key]
    if data.draw(st.booleans()):
        inner[last] = data.draw(anything)
    else:
        del inner[last]
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    try:
        use(tmp_path)
    except InputError as error:
        message = str(error)
    else:
        message = ""
    assert "Traceback" not in message


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(place=st.integers(0, 3000), value=st.integers(0, 255), cut=st.booleans())
def test_mutated_bytes_of_a_manifest(cardiac_store: Store, tmp_path: Path, place: int, value: int, cut: bool) -> None:
    if not (tmp_path / "cases").exists():
        (tmp_path / "cases").symlink_to(cardiac_store.path / "cases")
    content = bytearray((cardiac_store.path / "manifest.json").read_bytes())
    content[place] = value
    (tmp_path / "manifest.json").write_bytes(content[:place] if cut else content)
    try:
        use(tmp_path)
    except InputError as error:
        message = str(error)
    else:
        message = ""
    assert bool(message) or not cut
