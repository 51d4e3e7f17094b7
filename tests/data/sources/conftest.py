"""Data of the layouts that are read."""

from pathlib import Path

import pytest
from tests.data.layouts import write_nnunet


@pytest.fixture
def nnunet_raw(tmp_path: Path) -> Path:
    return write_nnunet(tmp_path / "Dataset001_Box", [(8, 9, 10)] * 3)
