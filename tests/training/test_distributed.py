"""Two processes give what one gives: the same batches, losses and multipliers."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from crac.data import Store
from crac.models.checkpoint import Checkpoint
from crac.training import train


@pytest.mark.slow
@pytest.mark.parametrize(
    "practical",
    [{}, {"augment": "strong", "mirror": True, "foreground": 0.5, "schedule": "poly", "clip_norm": 12.0,
          "deep_supervision": True, "patch_size": (32, 32)}],
)  # fmt: skip
def test_two_gloo_processes_agree_with_one(practical: dict[str, Any], small: Any, tmp_path: Path) -> None:
    """Gradients are added in another order, hence equal only to float32: losses to 1e-5, multipliers to 1e-4."""
    settings = {"epochs": 3, "deterministic": True, "width": 2, "backbone": "unet", "batch_size": 8, **practical}
    alone = train(small(**settings), tmp_path / "one")
    (tmp_path / "settings.yaml").write_text(small(devices=2, **settings).dump())
    command = [sys.executable, "-m", "crac", "train", "--config", str(tmp_path / "settings.yaml")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, "--out", str(tmp_path / "two"), "--json"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("epoch 3/3") == 1  # one process speaks
    assert json.loads(done.stdout)["finished"] is True
    one, two = (Checkpoint.load(tmp_path / name / "last.safetensors") for name in ("one", "two"))
    history = two.info["history"]
    assert len(history) == 3
    for row, other in zip(alone.history, history, strict=True):
        for name in ("train_loss", "validation_loss"):
            assert other[name] == pytest.approx(row[name], rel=1e-5), name
        # Both are steps: one of the 690 voxels that crosses the edge of a bin, or another class, moves them so far.
        assert other["ece"] == pytest.approx(row["ece"], abs=5e-3)
        assert other["dice"] == pytest.approx(row["dice"], abs=5e-3)
    for name in ("lambda_", "rho", "previous"):
        torch.testing.assert_close(two.part("loss")[name], one.part("loss")[name], rtol=1e-4, atol=1e-7)
    assert two.part("network").keys() == one.part("network").keys()


@pytest.mark.slow
def test_a_process_without_a_validation_volume_waits_for_nothing(small: Any, tmp_path: Path) -> None:
    config = small(devices=2, dims=3, width=2, batch_size=2, epochs=1)
    assert len(Store.open(config.data).split(config.split_seed).validation) == 1
    (tmp_path / "settings.yaml").write_text(config.dump())
    command = [sys.executable, "-m", "crac", "train", "--config", str(tmp_path / "settings.yaml")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, "--out", str(tmp_path / "run")], capture_output=True, text=True, timeout=200, env=environment
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_a_network_that_fails_on_the_volumes_of_one_process_ends_both(small: Any, tmp_path: Path) -> None:
    """The other process has no volume to see it on, and would wait for sums that never come."""
    config = small(devices=2, dims=3, width=2, batch_size=6, epochs=1, learning_rate=1e30)
    (tmp_path / "settings.yaml").write_text(config.dump())
    command = [sys.executable, "-m", "crac", "train", "--config", str(tmp_path / "settings.yaml")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, "--out", str(tmp_path / "run")], capture_output=True, text=True, timeout=200, env=environment
    )
    assert done.returncode == 1
    assert "the network no longer answers with numbers after epoch 1, step 1" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_errors_of_the_first_process_reach_all(small: Any, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "file").touch()
    (tmp_path / "settings.yaml").write_text(small(devices=2).dump())
    command = [sys.executable, "-m", "crac", "train", "--config", str(tmp_path / "settings.yaml")]
    done = subprocess.run([*command, "--out", str(tmp_path / "run")], capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    assert done.stderr.count("is not an empty folder") == 1


@pytest.mark.slow
def test_a_checkpoint_that_cannot_be_written_ends_all_processes_with_one_sentence(small: Any, tmp_path: Path) -> None:
    (tmp_path / "settings.yaml").write_text(small(devices=2, epochs=500, width=2, pictures=False).dump())
    command = [sys.executable, "-m", "crac", "train", "--json", "--config", str(tmp_path / "settings.yaml")]
    process = subprocess.Popen([*command, "--out", str(tmp_path / "run")], stderr=subprocess.PIPE, text=True)
    for line in process.stderr:
        if line.startswith("epoch"):
            break
    (tmp_path / "run").rename(tmp_path / "gone")  # a disk that is unmounted, or full
    _, said = process.communicate(timeout=120)
    assert process.returncode == 2
    assert said.count("cannot be written: ") == 1
    assert "Traceback" not in said


@pytest.mark.slow
def test_a_signal_to_all_processes_leaves_a_run_to_resume(small: Any, tmp_path: Path) -> None:
    """Ctrl-C reaches every process; only the first says so, and Fabric finds no failed one to kill it for."""
    (tmp_path / "settings.yaml").write_text(small(devices=2, epochs=500, width=2).dump())
    command = [sys.executable, "-m", "crac", "train", "--json", "--config", str(tmp_path / "settings.yaml")]
    process = subprocess.Popen(
        [*command, "--out", str(tmp_path / "run")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    for line in process.stderr:
        if line.startswith("epoch"):
            break
    os.killpg(process.pid, signal.SIGINT)
    result, said = process.communicate(timeout=120)
    assert process.returncode == 130
    assert json.loads(result)["finished"] is False
    assert said.count(f"continue with: crac train --resume {tmp_path / 'run'}") == 1
    assert 0 < Checkpoint.load(tmp_path / "run" / "last.safetensors").info["epoch"] < 500
    assert (tmp_path / "run" / "multipliers.png").exists()  # drawn last, when the other process has left


THREADS_AT_EXIT = """
import atexit, os, pathlib
names = lambda: [task.read_text().strip() for task in pathlib.Path("/proc/self/task").glob("*/comm")]
atexit.register(lambda: os.write(2, " ".join(["threads at exit:", *names(), "\\n"]).encode()))
"""
"""At once, for two processes write to the same place."""


@pytest.mark.slow
def test_nan_on_several_processes_ends_in_one_exit_code(small: Any, tmp_path: Path) -> None:
    (tmp_path / "settings.yaml").write_text(small(devices=2, batch_size=4, learning_rate=1e30).dump())
    (tmp_path / "sitecustomize.py").write_text(THREADS_AT_EXIT)
    command = [sys.executable, "-m", "crac", "train", "--config", str(tmp_path / "settings.yaml")]
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [*command, "--out", str(tmp_path / "run")],
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | {"PYTHONPATH": path},
    )
    assert done.returncode == 1, done.stderr
    assert "in epoch 1, step 2; cases of the batch: " in done.stderr
    assert done.stderr.count("threads at exit: ") == 2  # a thread of gloo's that is left may abort its process
    assert "gloo" not in done.stderr.split("threads at exit: ", 1)[1]
