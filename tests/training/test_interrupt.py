"""Ctrl-C and SIGTERM: what was trained is saved, and how to go on is said."""

import os
import shlex
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from tests.training.runs import start

from conftest_training import trained
from crac.cli import main
from crac.models.checkpoint import Checkpoint
from crac.training import resume, train
from crac.training.log import Log
from crac.training.run import RunFolder


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_in_the_middle_of_an_epoch(number: int, small: Any, tmp_path: Path) -> None:
    config = small(epochs=2, deterministic=True, batch_size=2, width=2, method="bwcr", augment=True)
    train(config, tmp_path / "whole")
    process = start(config, tmp_path / "run")
    while not (tmp_path / "run" / "last.safetensors").exists():
        assert process.exitcode is None
        time.sleep(0.01)
    time.sleep(0.05)
    os.kill(process.pid or 0, number)
    process.join()
    assert process.exitcode == 0
    stopped = Checkpoint.load(tmp_path / "run" / "last.safetensors")
    assert stopped.info["step"] > 0
    assert len(stopped.tensors["losses"]) == stopped.info["step"]
    assert resume(tmp_path / "run").finished
    assert trained(tmp_path / "run") == trained(tmp_path / "whole")
    whole, resumed = (RunFolder(tmp_path / name) for name in ("whole", "run"))
    losses = [[row["train_loss"] for row in Checkpoint.read_info(run.last)["history"]] for run in (whole, resumed)]
    assert losses[0] == losses[1]


def test_ctrl_c_on_the_command_line_says_how_to_go_on(
    small: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Log, "step", lambda *_: os.kill(os.getpid(), signal.SIGINT))
        config = tmp_path / "settings.yaml"
        config.write_text(small().dump())
        assert main(["train", "--config", str(config), "--out", str(tmp_path / "a run")]) == 130
    said = capsys.readouterr().err
    command = shlex.split(said[said.index("continue with: crac ") :])[3:]  # as a shell reads it
    assert command == ["train", "--resume", str(tmp_path / "a run")]
    assert main(command) == 0
    assert "best validation Dice" in capsys.readouterr().out
