"""What happens to real runs: kill -9, Ctrl-C, NaN, no memory, a second process, damaged and foreign files."""

import json
import multiprocessing
import os
import random
import re
import resource
import shlex
import shutil
import signal
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from conftest_training import trained
from crac.cli import main
from crac.data import Store, phantom, prepare
from crac.errors import InputError
from crac.models.checkpoint import Checkpoint
from crac.training import TrainConfig, TrainingError, resume, train
from crac.training.log import Log
from crac.training.run import RunFolder

# A server that has imported everything forks each process in milliseconds; none of them shares memory with another.
FORK = multiprocessing.get_context("forkserver")
FORK.set_forkserver_preload(
    ["crac.training", "lightning.fabric", "torch.utils.tensorboard", "matplotlib.pyplot", "rich.progress"]
)


def start(config: TrainConfig, run: Path) -> BaseProcess:
    """Begin the run, or go on with it, in a process of its own."""
    exists = (run / "config.yaml").exists()
    process = FORK.Process(target=resume if exists else train, args=(run,) if exists else (config, run))
    process.start()
    return process


@pytest.mark.slow
def test_twenty_kills_leave_the_same_bits_as_none(small: Any, tmp_path: Path) -> None:
    config = small(epochs=4, deterministic=True)
    for name in ("first", "whole"):  # the first waits for the server's imports, the second tells how long a run takes
        began = time.monotonic()
        whole = start(config, tmp_path / name)
        whole.join()
        duration = time.monotonic() - began
        assert whole.exitcode == 0
    assert trained(tmp_path / "first") == trained(tmp_path / "whole")
    expected = trained(tmp_path / "whole")
    moments, kills, finished = random.Random(0), 0, 0
    run = tmp_path / "run0"
    while kills < 20 or not finished:
        process = start(config, run)
        process.join(moments.uniform(0, duration) if kills < 20 else None)
        if process.exitcode is None:
            os.kill(process.pid or 0, signal.SIGKILL)
            process.join()
            kills += 1
        else:
            assert process.exitcode == 0
            assert trained(run) == expected
            finished += 1
            run = tmp_path / f"run{finished}"
        for name in ("last", "best"):
            if (path := run / f"{name}.safetensors").exists():
                Checkpoint.load(path)
    for done in range(finished):  # what a kill leaves half-written is gone once the run goes on
        assert not list((tmp_path / f"run{done}").glob(".*.partial"))


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


def test_json_stands_alone_whatever_libraries_print(
    small: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def noisy(*_: object) -> None:
        os.write(1, b"[Gloo] Rank 0 is connected\n")  # as compiled code does, past sys.stdout
        print("and this from Python")

    monkeypatch.setattr(Log, "step", noisy)
    (tmp_path / "settings.yaml").write_text(small(epochs=1).dump())
    assert main(["train", "--config", str(tmp_path / "settings.yaml"), "--out", str(tmp_path / "run"), "--json"]) == 0
    said = capfd.readouterr()
    assert json.loads(said.out)["finished"] is True
    assert "[Gloo] Rank 0" in said.err
    assert "and this from Python" in said.err


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


def test_nan_names_step_cases_and_the_last_good_checkpoint(small: Any, tmp_path: Path, store: Store) -> None:
    config = small(late_learning_rate=1e30, late_from=0.5, epochs=2, batch_size=4)
    with pytest.raises(TrainingError) as caught:
        train(config, tmp_path / "run")
    message = str(caught.value)
    assert "in epoch 2, step 2" in message
    assert any(name in message for name in store.split().train)
    assert f"the last good checkpoint is {tmp_path / 'run' / 'last.safetensors'}" in message
    good = Checkpoint.load(tmp_path / "run" / "last.safetensors")
    assert good.info["epoch"] == 1
    assert all(value.isfinite().all() for value in good.part("network").values())
    with pytest.raises(TrainingError, match="no checkpoint was saved before"):
        train(small(learning_rate=1e30), tmp_path / "other")
    # The last step of an epoch, whose own loss is still finite.
    with pytest.raises(TrainingError, match=r"no longer answers with numbers after epoch 1, step 1; cases .*: \w"):
        train(small(learning_rate=1e30, batch_size=1000), tmp_path / "last")


def test_a_second_process_is_refused(small: Any, tmp_path: Path) -> None:
    train(small(epochs=1), tmp_path / "run")
    with RunFolder(tmp_path / "run").lock(), pytest.raises(InputError, match="in use: another process is training it"):
        resume(tmp_path / "run")
    half = tmp_path / "run" / ".partial-1-last.safetensors"
    half.touch()
    assert resume(tmp_path / "run").finished
    assert not half.exists()
    with pytest.raises(InputError, match=r"already holds a run: continue it with crac train --resume"):
        train(small(), tmp_path / "run")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").touch()
    with pytest.raises(InputError, match="not an empty folder"):
        train(small(), tmp_path / "full")


def test_out_of_memory_says_what_to_lower(small: Any, tmp_path: Path) -> None:
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + 2**29, limits[1]))
    try:
        with pytest.raises(
            InputError, match=r"out of memory: lower batch_size \(now 8\), width \(now 300\), or choose"
        ):
            train(small(width=300), tmp_path / "run")
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
    assert not list(tmp_path.iterdir())  # the same --out can be used with smaller settings


def edit(run: Path, **settings: Any) -> None:
    path = run / "config.yaml"
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | settings))


@pytest.fixture
def run(small: Any, tmp_path: Path) -> Path:
    train(small(epochs=1), tmp_path / "run")
    edit(tmp_path / "run", epochs=2)
    return tmp_path / "run"


def test_foreign_and_damaged_runs(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(run, tmp_path / "narrow")
    edit(tmp_path / "narrow", width=2)
    with pytest.raises(InputError, match=r"last\.safetensors holds another architecture: .* is 4x1x3x3, not 2x1x3x3"):
        resume(tmp_path / "narrow")
    shutil.copytree(run, tmp_path / "cut")
    content = (tmp_path / "cut" / "last.safetensors").read_bytes()
    (tmp_path / "cut" / "last.safetensors").write_bytes(content[: len(content) // 2])
    with pytest.raises(InputError, match=r"last\.safetensors is damaged or not a safetensors file"):
        resume(tmp_path / "cut")
    shutil.copytree(run, tmp_path / "environment")
    (tmp_path / "environment" / "environment.json").write_text("{")
    with pytest.raises(InputError, match=r"environment\.json is damaged"):
        resume(tmp_path / "environment")
    phantom.cardiac(tmp_path / "cardiac", patients=1, size=32, slices=2)
    prepare("acdc", tmp_path / "cardiac", tmp_path / "other")
    edit(run, data=str(tmp_path / "other"))
    with pytest.raises(InputError, match=r"other has 4 classes \(background, .*\), the checkpoint has 5"):
        resume(run)
    edit(run, data=str(tmp_path / "nowhere"))
    assert main(["train", "--resume", str(run)]) == 2
    assert "nowhere is not a prepared store" in capsys.readouterr().err
    edit(run, epoch=3)
    assert main(["train", "--resume", str(run)]) == 2
    assert "unknown setting 'epoch'" in capsys.readouterr().err
    assert main(["train", "--resume", str(tmp_path)]) == 2
    assert "is not a run" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda tensors, info: info.update(step=3), "losses"),
        (lambda tensors, info: info.pop("history"), "history"),
        (lambda tensors, info: tensors.update({"optimizer.999.step": torch.zeros(())}), "index"),
        (lambda tensors, info: tensors.update({"optimizer.0.exp_avg": torch.zeros(3)}), "exp_avg has shape"),
    ],
)
def test_a_checkpoint_that_lacks_what_resuming_needs(
    run: Path, change: Callable[[dict[str, Any], dict[str, Any]], None], message: str
) -> None:
    saved = Checkpoint.load(run / "last.safetensors")
    change(saved.tensors, saved.info)
    saved.save(run / "last.safetensors")
    with pytest.raises(InputError, match=rf"last\.safetensors cannot be resumed from: .*{message}"):
        resume(run)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--data", "nowhere", "--out", "x"], "nowhere is not a prepared store"),
        (["--out", "x"], "data is missing"),
        (["--data", "x"], "--out is missing"),
        (["--resume", "x", "--epochs", "3"], "--resume takes its settings from the run; got also --epochs"),
        (["--data", "STORE", "--out", "x", "--method-options", "alpha"], "must be NAME=VALUE; got 'alpha'"),
        (["--data", "STORE", "--out", "x", "--method-options", "alpha=1"], "option of .crac. must be one of"),
        (["--data", "STORE", "--out", "x", "--method-options", "num_classes=9"], "must not hold 'num_classes'"),
        (["--data", "STORE", "--out", "."], "is the current folder"),
        (["--data", "STORE", "--out", "x", "--patch-size", "3"], "patch_size must be 2 numbers"),
        (["--data", "STORE", "--out", "x", "--devices", "3"], "batch_size must be a multiple of the 3 devices"),
        (["--data", "STORE", "--out", "x", "--split", "no.json"], r"no\.json"),
    ],
)
def test_bad_input_is_one_sentence_and_leaves_nothing(
    arguments: list[str], message: str, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    given = [str(store.path) if argument == "STORE" else argument for argument in arguments]
    assert main(["train", *given]) == 2
    error = capsys.readouterr().err
    assert error.startswith("crac train: ")
    assert error.count("\n") == 1
    assert re.search(message, error)
    assert not list(tmp_path.iterdir())
