"""Records on disk: a damaged manifest can do no harm."""

import json
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crac.data import Store
from crac.errors import InputError


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
