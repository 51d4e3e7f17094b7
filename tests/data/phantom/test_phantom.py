"""Every phantom: reproducible, and refusing what it cannot write."""

from pathlib import Path

import pytest
from tests.data.phantom.files import fingerprint

from crac.data import phantom
from crac.errors import InputError


@pytest.mark.parametrize("write", [phantom.cardiac, phantom.abdominal])
def test_deterministic_by_seed(write, tmp_path: Path) -> None:
    options = {"patients": 2, "size": 40, "slices": 4}
    first, second, other = (
        fingerprint(write(tmp_path / name, seed=seed, **options)) for name, seed in (("a", 1), ("b", 1), ("c", 2))
    )
    assert first == second
    assert not set(first.values()) & set(other.values())
    more = fingerprint(write(tmp_path / "more", seed=1, **options | {"patients": 3}))
    assert first.items() <= more.items()


@pytest.mark.parametrize("write", [phantom.cardiac, phantom.abdominal])
def test_bad_arguments(write, tmp_path: Path) -> None:
    for options in ({"patients": 0}, {"size": 8}, {"slices": 1}):
        with pytest.raises(InputError, match="must be a whole number of at least"):
            write(tmp_path / "out", **options)
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        write(tmp_path / "file", patients=1, size=32, slices=4)
