"""Whole trainings on small phantoms: every method, kill -9, no memory and bad input."""

import json
import os
import random
import re
import resource
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.training.runs import start

from conftest_training import trained
from crac import METHODS
from crac.cli import main
from crac.data import Store
from crac.errors import InputError
from crac.models.card import ModelCard
from crac.models.checkpoint import Checkpoint
from crac.training import TrainConfig, resume, train
from crac.training.log import Log


@pytest.mark.parametrize("method", METHODS)
def test_every_method_trains_every_layer(method: str, small: Any, tmp_path: Path, store: Store) -> None:
    config: TrainConfig = small(method=method, epochs=1, seed=3)
    result = train(config, tmp_path / "run")
    assert result.finished
    torch.manual_seed(3)
    fresh = ModelCard.of(store, "unet", 4, 2, None).build().state_dict()
    after = Checkpoint.load(tmp_path / "run" / "last.safetensors").part("network")
    assert after.keys() == fresh.keys()
    moved = [not torch.equal(after[name], fresh[name]) for name in fresh]
    assert all(moved)
    assert all(value.isfinite().all() for value in after.values())


def test_caches_and_resume_of_a_finished_run_change_nothing(small: Any, tmp_path: Path) -> None:
    for cache in ("memory", "mmap", "device"):
        train(small(cache=cache, epochs=1), tmp_path / cache)
    assert trained(tmp_path / "memory") == trained(tmp_path / "mmap") == trained(tmp_path / "device")
    assert resume(tmp_path / "mmap").finished
    assert trained(tmp_path / "memory") == trained(tmp_path / "mmap")


@pytest.mark.parametrize(
    "settings",
    [
        {"precision": "bf16"},
        {"precision": "fp16"},
        {"precision": "tf32", "channels_last": True},
        {"augment": True, "patch_size": (32, 40)},
        {"dims": 3, "patch_size": (4, 32, 32), "batch_size": 2},
        {"dims": 3, "channels_last": True, "method": "bwcr", "batch_size": 2},
        {"backbone": "nnunet", "width": 2},
    ],
)
def test_options_train_to_nearly_the_same_or_at_least_finite(
    settings: dict[str, Any], small: Any, tmp_path: Path
) -> None:
    plain = train(small(epochs=1), tmp_path / "plain").history[0]["train_loss"]
    row = train(small(epochs=1, **settings), tmp_path / "run").history[0]
    assert all(value == value for name, value in row.items() if "dice_" not in name)
    if "precision" in settings:
        assert row["train_loss"] == pytest.approx(plain, rel=0.02)
    resume(tmp_path / "run")


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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--data", "nowhere", "--out", "x"], "nowhere is not a prepared store"),
        (["--out", "x"], "data is missing"),
        (["--data", "x"], "--out is missing"),
        (["--resume", "x", "--width", "3"], "--resume takes its settings from the run; got also --width"),
        (["--data", "STORE", "--out", "x", "--init", "y"], "init must be a run or a checkpoint"),
        (["--data", "STORE", "--out", "x", "--method-options", "alpha"], "must be NAME=VALUE; got 'alpha'"),
        (["--data", "STORE", "--out", "x", "--method-options", "alpha=1"], "option of .ce. must be one of"),
        (["--data", "STORE", "--out", "x", "--method-options", "num_classes=9"], "must not hold 'num_classes'"),
        (["--data", "STORE", "--out", "x", "--patch-size", "3"], "patch_size must be 2 numbers"),
        (
            ["--data", "STORE", "--out", "x", "--devices", "3", "--batch-size", "16"],
            "must be a multiple of the 3 devices",
        ),
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


def test_multipliers_need_a_validation_voxel_that_counts(small: Any, tmp_path: Path, store: Store) -> None:
    shutil.copytree(store.path, tmp_path / "store")
    manifest = tmp_path / "store" / "manifest.json"
    content = json.loads(manifest.read_text())
    for name in store.split().validation:  # as if every voxel had the label to ignore
        content["cases"][name]["prepared_voxels"] = [0] * store.num_classes
    manifest.write_text(json.dumps(content))
    with pytest.raises(InputError, match="method crac learns from the validation part of the split, and all voxels"):
        train(small(data=tmp_path / "store", method="crac"), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    assert train(small(data=tmp_path / "store", method="ce", epochs=1), tmp_path / "run").finished
