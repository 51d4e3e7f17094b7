"""Runs that begin from another's weights, runs that go further than planned, and names in any script."""

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.data.layouts import write_nnunet

from conftest_training import trained
from crac.cli import main
from crac.data import Store, prepare
from crac.errors import InputError
from crac.models.checkpoint import Checkpoint
from crac.models.model import Model
from crac.palette import pyplot
from crac.training import resume, task, train
from crac.training.plots import plot_multipliers


def test_a_finished_run_says_so_and_goes_further(
    small: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    quick = {"deterministic": True, "pictures": False, "late_from": 0.0}
    train(small(epochs=1, **quick), tmp_path / "run")
    train(small(epochs=2, **quick), tmp_path / "whole")
    capsys.readouterr()
    assert main(["train", "--resume", str(tmp_path / "run")]) == 0
    said = capsys.readouterr().err
    assert "run is finished: all 1 epochs are done; to go further: crac train --resume" in said
    assert main(["train", "--resume", str(tmp_path / "run"), "--epochs", "2"]) == 0
    assert "is finished" not in capsys.readouterr().err
    assert trained(tmp_path / "run") == trained(tmp_path / "whole")
    assert (tmp_path / "run" / "config.yaml").read_text() == (tmp_path / "whole" / "config.yaml").read_text()
    with pytest.raises(InputError, match=r"epochs must be at least 2, which .*run has done already; got 1"):
        resume(tmp_path / "run", 1)
    assert main(["train", "--resume", str(tmp_path / "run"), "--epochs", "no"]) == 2


def test_weights_of_another_run(small: Any, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: dict[str, torch.Tensor] = {}
    train(small(epochs=1, pictures=False), tmp_path / "first")
    given = Checkpoint.load(tmp_path / "first" / "best.safetensors").part("network")
    begin = task.begin_from

    def noted(network: torch.nn.Module, *arguments: Any) -> None:
        begin(network, *arguments)
        begun.update({name: tensor.clone() for name, tensor in network.state_dict().items()})

    monkeypatch.setattr(task, "begin_from", noted)
    train(small(epochs=1, pictures=False, init=tmp_path / "first"), tmp_path / "second")
    of_the_data = ("mean", "deviation")
    assert all(torch.equal(begun[name], given[name]) for name in given if name not in of_the_data)

    # Another data set with two classes: the same but for the last layer.
    raw = write_nnunet(tmp_path / "raw", [(48, 48, 4)] * 4)
    other = prepare("nnunet", raw, tmp_path / "other", dims=2)
    train(
        small(epochs=1, pictures=False, data=other.path, init=tmp_path / "first" / "best.safetensors"),
        tmp_path / "third",
    )
    differing = {name for name in given if name not in of_the_data and begun[name].shape != given[name].shape}
    assert differing == {"network.head.weight", "network.head.bias"}
    same = [name for name in given if name not in differing and name not in of_the_data]
    assert all(torch.equal(begun[name], given[name]) for name in same)
    assert Model.load(tmp_path / "third", "cpu").card.class_names == ("background", "box")
    assert resume(tmp_path / "third", 2).finished  # goes on from its own weights
    with pytest.raises(InputError, match="has width 4, the new run 2"):
        train(small(epochs=1, width=2, init=tmp_path / "first"), tmp_path / "fourth")
    assert not (tmp_path / "fourth").exists()


def test_names_in_any_script_are_drawn_without_warnings(tmp_path: Path) -> None:
    names = ("背景", "Herzkammer (größer)", "ЛЖ", "心筋")
    columns = {f"{kind}_inner_{name}": len(name) for kind in ("lambda", "rho") for name in names}
    history = [{"epoch": epoch, **{name: epoch * value for name, value in columns.items()}} for epoch in (1, 2)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pyplot()
        plot_multipliers(history, tmp_path / "plot.png", "Läufe 背景")
        raw = write_nnunet(tmp_path / "raw", [(12, 12, 4)] * 3)
        content = json.loads((raw / "dataset.json").read_text())
        (raw / "dataset.json").write_text(json.dumps(content | {"labels": {"背景": 0, "ЛЖ": 1}, "name": "心臓"}))
        assert prepare("nnunet", raw, tmp_path / "store").name == "心臓"
