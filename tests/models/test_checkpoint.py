"""One file, whole or not at all, and no code in it."""

import contextlib
import json
import os
import pickle
import shutil
import tempfile
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file

from crac.errors import InputError
from crac.models.checkpoint import Checkpoint, load_tensors, prefixed, replacing
from crac.networks import build_network


def example() -> Checkpoint:
    tensors = {"network.a": torch.randn(3, 2), "loss.steps": torch.tensor(7), "network.b": torch.randn(4, 4).T}
    return Checkpoint(tensors, {"epoch": 3, "history": [{"dice": 0.1 + 0.2}]})


def test_round_trip_is_exact(tmp_path: Path) -> None:
    before = example()
    before.save(tmp_path / "last.safetensors")
    after = Checkpoint.load(tmp_path / "last.safetensors")
    assert after.tensors.keys() == before.tensors.keys()
    assert all(torch.equal(after.tensors[name], tensor) for name, tensor in before.tensors.items())
    assert after.info == {"format": 1, **before.info}
    assert json.loads((tmp_path / "last.json").read_text()) == after.info
    assert after.part("network").keys() == {"a", "b"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["last.json", "last.safetensors"]


def test_files_have_the_permissions_of_any_new_file(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        example().save(tmp_path / "last.safetensors")
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o640}


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(UnicodeEncodeError), replacing(path) as partial:
        partial.write_text("half\ud800", encoding="utf-8")
    assert path.read_text() == "old"
    with pytest.raises(InputError, match="cannot be written"), replacing(tmp_path / "no" / "file") as partial:
        partial.write_text("x")
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_pickles_are_refused_unread(tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> tuple[object, ...]:
            return Path.touch, (tmp_path / "exploded",)

    path = tmp_path / "best.safetensors"
    path.write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(InputError, match="damaged or not a safetensors file"):
        Checkpoint.load(path)
    torch.save({"x": Bomb()}, path)
    with pytest.raises(InputError, match="damaged or not a safetensors file"):
        Checkpoint.load(path)
    assert not (tmp_path / "exploded").exists()


def test_foreign_and_newer_files(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    with pytest.raises(InputError, match="missing"):
        Checkpoint.load(path)
    save_file({"a": torch.zeros(1)}, path)
    with pytest.raises(InputError, match="not a checkpoint of crac"):
        Checkpoint.load(path)
    save_file({"a": torch.zeros(1)}, path, metadata={"crac": '{"format": 2}'})
    with pytest.raises(InputError, match="format 2, this crac reads up to 1"):
        Checkpoint.load(path)


@given(st.data())
def test_no_damage_gives_anything_but_the_documented_error(data: st.DataObject) -> None:
    path = Path(tempfile.mkdtemp()) / "damaged.safetensors"
    example().save(path)
    content = bytearray(path.read_bytes())
    if data.draw(st.booleans()):
        content = content[: data.draw(st.integers(0, len(content) - 1))]
    else:
        content[data.draw(st.integers(0, 300))] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    with contextlib.suppress(InputError):
        Checkpoint.load(path)
    shutil.rmtree(path.parent)


def test_another_architecture_is_named() -> None:
    network = build_network("unet", 1, 4, width=2)
    other = prefixed("network", build_network("unet", 1, 5, width=2).state_dict())
    tensors = {name.removeprefix("network."): value for name, value in other.items()}
    with pytest.raises(
        InputError, match=r"x\.safetensors holds another architecture: .*head\.weight is 5x2x1x1, not 4x"
    ):
        load_tensors(network, tensors, Path("x.safetensors"))
    before = network.state_dict()["network.head.weight"].clone()
    with pytest.raises(InputError, match=r"another architecture: .* is absent"):
        load_tensors(network, {}, Path("x.safetensors"))
    assert torch.equal(network.state_dict()["network.head.weight"], before)
