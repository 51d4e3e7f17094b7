"""What a training begins with."""

from pathlib import Path
from typing import Any

import numpy as np

from crac.data import Store
from crac.models.checkpoint import Checkpoint
from crac.training import train
from crac.training.run import RunFolder


def test_the_network_knows_the_intensities_of_the_training_set_alone(small: Any, tmp_path: Path, store: Store) -> None:
    result = train(small(), tmp_path / "run")
    mean, deviation = store.moments(RunFolder(result.run).split().train)
    network = Checkpoint.load(RunFolder(result.run).best).part("network")
    np.testing.assert_allclose(network["mean"], mean, rtol=1e-6)
    np.testing.assert_allclose(network["deviation"], deviation, rtol=1e-6)
