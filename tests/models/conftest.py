from pathlib import Path

import pytest

from conftest_training import small, store  # noqa: F401
from crac.data import Store
from crac.training import train


@pytest.fixture(scope="session")
def run(store: Store, tmp_path_factory: pytest.TempPathFactory) -> Path:  # noqa: F811
    from crac.training import TrainConfig

    settings = {
        "recipe": "paper",
        "data": store.path,
        "width": 2,
        "epochs": 1,
        "accelerator": "cpu",
        "backbone": "nnunet",
    }
    return train(TrainConfig.make(settings), tmp_path_factory.mktemp("runs") / "run").run
