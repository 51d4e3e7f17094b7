"""The command around the demo; what it makes is tested with :mod:`crac.demo`."""

import json
from pathlib import Path

import pytest

import crac.demo
from crac.cli import main


def test_json_is_all_that_a_machine_gets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def demo(*_: object) -> dict[str, float]:
        print("epoch 1/1")
        return {"seconds": 1.0}

    monkeypatch.setattr(crac.demo, "run_demo", demo)
    assert main(["demo", "--out", str(tmp_path / "demo"), "--json"]) == 0
    out, error = capsys.readouterr()
    assert json.loads(out) == {"seconds": 1.0}
    assert "epoch 1/1" in error


def test_a_bad_seed_leaves_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--out", str(tmp_path / "demo"), "--seed", "-1"]) == 2
    assert "--seed must be a whole number of at least 0; got -1" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
