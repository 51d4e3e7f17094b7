"""Many predictions in one process, whose memory stays as it is; and ten trainings side by side on one store.

The resident memory after each prediction is compared over the second half of the predictions: the mean of its last
tenth may exceed that of its first tenth by 2 %.
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from tests.campaigns.campaign import RESULTS, SEED, _versions
from tests.campaigns.kill import _weights
from tests.training.runs import FORK, start

from crac.data import phantom, prepare
from crac.models.model import Model
from crac.training import TrainConfig, train

GROWTH = 0.02


def resident() -> int:
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def soak(folder: Path, predictions: int, runs: int) -> dict[str, Any]:
    """Return what was found; raises where memory grows or two trainings differ."""
    phantom.cardiac(folder / "raw", patients=4, size=48, slices=4, seed=SEED)
    prepare("acdc", folder / "raw", folder / "store")
    settings: dict[str, Any] = {
        "recipe": "paper",
        "width": 2,
        "batch_size": 8,
        "accelerator": "cpu",
        "deterministic": True,
    }
    config = TrainConfig(data=folder / "store", epochs=1, pictures=False, **settings)
    train(config, folder / "run")
    began = time.monotonic()
    processes = [start(config, folder / f"run{number}") for number in range(runs)]
    for process in processes:
        process.join()
    codes = [process.exitcode for process in processes]
    different = {_weights(folder / f"run{number}") for number in range(runs)} | {_weights(folder / "run")}
    assert codes == [0] * runs, codes
    assert len(different) == 1, "trainings side by side gave different weights"
    beside, began = time.monotonic() - began, time.monotonic()
    model, images = Model.load(folder / "run", "cpu"), sorted((folder / "raw").glob("*/*frame??.nii.gz"))
    used = []
    for number in range(predictions):
        labels, probabilities = model.predict(images[number % len(images)])
        assert np.asarray(probabilities).shape[1:] == np.asarray(labels).shape
        del labels, probabilities
        used.append(resident())
    half = used[len(used) // 2 :]
    tenth = max(1, len(half) // 10)
    growth = float(np.mean(half[-tenth:]) / np.mean(half[:tenth]) - 1)
    assert growth <= GROWTH, f"memory grew by {growth:.1%}"
    return {
        "campaign": "soak", "seed": SEED, "predictions": predictions, "growth": round(growth, 5),
        "resident_mib": round(used[-1] / 2**20), "runs_side_by_side": runs, "defects": 0,
        "seconds": {"predictions": round(time.monotonic() - began, 1), "runs": round(beside, 1)},
        "versions": _versions(),
    }  # fmt: skip


if __name__ == "__main__":
    assert FORK is not None
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--predictions", type=int, default=500)
    parser.add_argument("--runs", type=int, default=10)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        found = soak(Path(name), arguments.predictions, arguments.runs)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "soak.json").write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1))
    sys.exit(0)
