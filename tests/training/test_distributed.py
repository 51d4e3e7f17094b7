"""Two processes give what one gives: the same batches, losses and multipliers."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from crac.training import train
from crac.training.checkpoint import Checkpoint


@pytest.mark.slow
def test_two_gloo_processes_agree_with_one(small: Any, tmp_path: Path) -> None:
    """Gradients are added in another order, hence equal only to float32: losses to 1e-5, multipliers to 1e-4."""
    settings = {"epochs": 3, "deterministic": True, "width": 2, "backbone": "nnunet", "batch_size": 8}
    alone = train(small(**settings), tmp_path / "one")
    (tmp_path / "settings.yaml").write_text(small(devices=2, **settings).dump())
    command = [sys.executable, "-m", "crac", "train", "--config", str(tmp_path / "settings.yaml")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, "--out", str(tmp_path / "two")], env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("epoch 3/3") == 1  # one process speaks
    one, two = (Checkpoint.load(tmp_path / name / "last.safetensors") for name in ("one", "two"))
    history = two.info["history"]
    assert len(history) == 3
    for row, other in zip(alone.history, history, strict=True):
        for name in ("train_loss", "validation_loss"):
            assert other[name] == pytest.approx(row[name], rel=1e-5), name
        assert other["ece"] == pytest.approx(row["ece"], abs=1e-4)
        assert other["dice"] == pytest.approx(row["dice"], abs=2e-3)
    for name in ("lambda_", "rho", "previous"):
        torch.testing.assert_close(two.part("loss")[name], one.part("loss")[name], rtol=1e-4, atol=1e-7)
    assert two.part("network").keys() == one.part("network").keys()


@pytest.mark.slow
def test_errors_of_the_first_process_reach_all(small: Any, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "file").touch()
    (tmp_path / "settings.yaml").write_text(small(devices=2).dump())
    command = [sys.executable, "-m", "crac", "train", "--config", str(tmp_path / "settings.yaml")]
    done = subprocess.run([*command, "--out", str(tmp_path / "run")], capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    assert "is not an empty folder" in done.stderr
