"""The folder of a run: what it holds, who may write it, and what is refused."""

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.training.runs import edit

from conftest_training import trained
from crac.cli import main
from crac.data import Store, phantom, prepare
from crac.errors import InputError
from crac.models.checkpoint import Checkpoint, DamagedError
from crac.training import TrainConfig, resume, train
from crac.training.run import RunFolder


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
    for damaged, message in (("{", "cannot be read as JSON"), ("3", "is damaged: remove it")):
        (tmp_path / "environment" / "environment.json").write_text(damaged)
        with pytest.raises(InputError, match=rf"environment\.json {message}"):
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


def test_a_flipped_bit_is_found_and_the_checkpoint_before_is_taken(
    small: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    train(small(epochs=3, deterministic=True, pictures=False), run)
    expected, content = trained(run), bytearray((run / "last.safetensors").read_bytes())
    start = 8 + int.from_bytes(content[:8], "little")
    for place in (start + 5, (start + len(content)) // 2, len(content) - 1, content.index(b'"history')):
        content[place] ^= 4
        (run / "last.safetensors").write_bytes(content)
        with pytest.raises(DamagedError, match="is damaged"):
            Checkpoint.load(run / "last.safetensors")
        assert main(["train", "--resume", str(run)]) == 0
        said = capsys.readouterr().err
        assert "last.safetensors is damaged" in said
        assert "going on from the checkpoint before, 2 epochs" in said
        assert trained(run) == expected
        content[place] ^= 4
    (run / "last.safetensors").write_bytes(content[:start])
    assert main(["train", "--resume", str(run), "--epochs", "1"]) == 2
    assert "epochs must be at least 2, which" in capsys.readouterr().err  # as the checkpoint before says
    assert main(["train", "--resume", str(run), "--epochs", "3"]) == 0
    assert "going on from the checkpoint before, 2 epochs" in capsys.readouterr().err
    assert trained(run) == expected
    content[start] ^= 1
    (run / "last.safetensors").write_bytes(content)
    (run / "previous.safetensors").unlink()
    assert main(["train", "--resume", str(run)]) == 2
    assert "it does not hold what was written (its checksum differs)" in capsys.readouterr().err
    assert main(["evaluate", str(run), "--checkpoint", "last", "--out", str(tmp_path / "audit")]) == 2
    assert not (tmp_path / "audit").exists()


def test_a_damaged_best_checkpoint_is_replaced(small: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    train(small(epochs=2, pictures=False), run)
    best = run / "best.safetensors"
    best.write_bytes(best.read_bytes()[:1000])
    assert main(["train", "--resume", str(run), "--epochs", "4"]) == 0
    said = capsys.readouterr().err
    assert said.count("best.safetensors is damaged") == 1
    assert "the best from here on takes its place" in said
    later = Checkpoint.load(run / "best.safetensors").info
    rows = list(csv.DictReader((run / "metrics.csv").open()))[2:]
    assert float(later["dice"]) == pytest.approx(max(float(row["dice"]) for row in rows))


def test_a_run_folder_explains_itself(small: Any, tmp_path: Path, store: Store) -> None:
    config = small(epochs=2, method_options={"rho": 0.2})
    result = train(config, tmp_path / "run")
    names = {path.name for path in (tmp_path / "run").iterdir()} - {".lock"}
    assert names == {
        *(
            "config.yaml",
            "split.json",
            "environment.json",
            "metrics.csv",
            "multipliers.png",
            "curves.png",
            "tensorboard",
        ),
        *("best.safetensors", "best.json", "last.safetensors", "last.json", "previous.safetensors"),
    }
    assert TrainConfig.load(tmp_path / "run" / "config.yaml") == config
    with (tmp_path / "run" / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [{name: float(value) for name, value in row.items()} for row in rows] == result.history
    columns = set(rows[0])
    assert {f"{kind}_{region}_{name}" for kind in ("lambda", "rho") for region in ("inner", "outer")
            for name in store.class_names} <= columns  # fmt: skip
    assert {"train_loss", "validation_loss", "dice", "dice_liver", "ece", "ece_inner", "ece_outer"} <= columns

    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    events.Reload()
    scalars = {
        tag.partition("/")[2]: [event.value for event in events.Scalars(tag)] for tag in events.Tags()["scalars"]
    }
    assert scalars.keys() == columns
    assert scalars["ece_outer"] == pytest.approx([row["ece_outer"] for row in result.history])
    (start,) = json.loads((tmp_path / "run" / "environment.json").read_text())
    assert start["packages"]["torch"]
