from pathlib import Path
from typing import Any

import pytest
from tests.training.runs import edit

from conftest_training import small, store  # noqa: F401
from crac.training import train


@pytest.fixture
def run(small: Any, tmp_path: Path) -> Path:  # noqa: F811
    train(small(epochs=1), tmp_path / "run")
    edit(tmp_path / "run", epochs=2)
    return tmp_path / "run"
