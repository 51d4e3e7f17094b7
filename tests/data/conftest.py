"""Small data sets in every layout, written once a session."""

from pathlib import Path

import pytest

from crac.data import Store, phantom, prepare


@pytest.fixture(scope="session")
def cardiac_raw(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return phantom.cardiac(tmp_path_factory.mktemp("cardiac") / "raw", patients=6, size=48, slices=3)


@pytest.fixture(scope="session")
def cardiac_store(cardiac_raw: Path) -> Store:
    return prepare("acdc", cardiac_raw, cardiac_raw.parent / "store")


@pytest.fixture(scope="session")
def abdominal_raw(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return phantom.abdominal(tmp_path_factory.mktemp("abdominal") / "raw", patients=3, size=48, slices=8)
