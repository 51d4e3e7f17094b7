"""Small abdominal phantoms, prepared once, and settings that train on them in a second."""

from pathlib import Path
from typing import Any

import pytest

from crac.data import Store, phantom, prepare
from crac.training import TrainConfig


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Eight patients of four 48×48 slices, five classes."""
    folder = tmp_path_factory.mktemp("phantoms")
    phantom.abdominal(folder / "raw", patients=8, size=48, slices=6)
    return prepare("flare", folder / "raw", folder / "store", spacing=(40.0, 8.0, 8.0), crop=(4, 48, 48))


@pytest.fixture
def small(store: Store) -> Any:
    """Makes settings of a training that takes a second."""

    def make(**settings: Any) -> TrainConfig:
        defaults = {
            "data": store.path,
            "recipe": "paper",
            "width": 4,
            "epochs": 2,
            "batch_size": 8,
            "accelerator": "cpu",
        }
        return TrainConfig.make({**defaults, **settings})

    return make


def trained(path: Path) -> bytes:
    """The bytes that must agree when two trainings do: weights and multipliers of the last checkpoint."""
    from crac.models.checkpoint import Checkpoint

    tensors = Checkpoint.load(path / "last.safetensors").tensors
    return b"".join(name.encode() + tensors[name].numpy().tobytes() for name in sorted(tensors))
