"""Devices and numerics of a training."""

from pathlib import Path
from typing import Any

import torch

from crac.training import train


def test_global_switches_are_put_back(small: Any, tmp_path: Path) -> None:
    before = torch.backends.cudnn.benchmark, torch.are_deterministic_algorithms_enabled()
    train(small(epochs=1, deterministic=True, precision="tf32"), tmp_path / "run")
    assert (torch.backends.cudnn.benchmark, torch.are_deterministic_algorithms_enabled()) == before
