"""Where the numbers of an epoch go."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from crac.errors import InputError
from crac.training import train


def test_mlflow_gets_settings_and_every_epoch(small: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[Any, ...]] = []
    fake = SimpleNamespace(
        start_run=lambda run_name: calls.append(("start", run_name)),
        log_params=lambda params: calls.append(("params", params["epochs"])),
        log_metrics=lambda row, step: calls.append(("metrics", step, row["dice"])),
        end_run=lambda: calls.append(("end",)),
    )
    monkeypatch.setitem(sys.modules, "mlflow", fake)
    history = train(small(mlflow=True), tmp_path / "run").history
    metrics = [("metrics", step, row["dice"]) for step, row in enumerate(history, start=1)]
    assert calls == [("start", "run"), ("params", 2), *metrics, ("end",)]
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(InputError, match=r"pip install 'crac\[mlflow\]'"):
        train(small(mlflow=True), tmp_path / "without")
    assert not (tmp_path / "without").exists()
