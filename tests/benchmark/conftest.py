"""A suite of three methods that runs in a second or two each, and committed results of phantoms."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.benchmark.committed import FIXTURE

from conftest_training import store  # noqa: F401
from crac.benchmark import CellResult, Suite, load_results
from crac.data import Store


@pytest.fixture
def tiny(store: Store, tmp_path: Path) -> Any:  # noqa: F811
    """Writes a suite file."""

    def write(**changes: Any) -> Path:
        content = {
            "title": "Tiny",
            "datasets": {"phantom": {"store": str(store.path), "label": "Phantom"}},
            "backbones": ["unet"],
            "seeds": [0],
            "training": {"recipe": "paper", "epochs": 1, "width": 2, "batch_size": 8, "accelerator": "cpu"},
            "methods": {
                "ce": {"method": "ce", "label": "CE"},
                "ce-temperature": {"temperature_of": "ce", "label": "CE + temperature"},
                "crac-released": {"method": "crac", "label": "CRaC (released)"},
            },
        }
        path = tmp_path / "tiny.yaml"
        path.write_text(yaml.safe_dump({**content, **changes}, sort_keys=False))
        return path

    return write


@pytest.fixture
def tiny_suite(tiny: Any) -> Any:
    """Loads a suite file."""
    return lambda **changes: Suite.load(tiny(**changes))


@pytest.fixture
def results() -> list[CellResult]:
    """Results of format 1, as an earlier version wrote them: two masks, four methods and a sweep, two seeds."""
    return load_results([FIXTURE / "results"])
