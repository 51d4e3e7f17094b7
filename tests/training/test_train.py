"""Whole trainings on small phantoms: every method, and what a run leaves behind."""

import csv
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from conftest_training import trained
from crac import METHODS, build_loss
from crac.data import Batches, Store
from crac.errors import InputError
from crac.models.card import ModelCard
from crac.models.checkpoint import Checkpoint, load_tensors
from crac.training import TrainConfig, resume, train
from crac.training.run import RunFolder


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


def logits_and_labels(store: Store, cases: list[str], run: Path, name: str) -> tuple[torch.Tensor, torch.Tensor]:
    checkpoint = Checkpoint.load(run / name)
    network = ModelCard.read(checkpoint.info, run).build()
    load_tensors(network, checkpoint.part("network"), run)
    (batch,) = Batches(store, cases, batch_size=1000, shuffle=False)
    with torch.no_grad():
        return network.eval()(batch.images), batch.labels


def test_the_outer_step_is_the_validation_set_seen_by_the_trained_network(
    small: Any, tmp_path: Path, store: Store
) -> None:
    train(small(epochs=1), tmp_path / "run")
    logits, labels = logits_and_labels(store, store.split().validation, tmp_path / "run", "last.safetensors")
    loss = build_loss("crac", store.num_classes)
    loss.observe(logits, labels)
    loss.update_multipliers()
    saved = Checkpoint.load(tmp_path / "run" / "last.safetensors").part("loss")
    torch.testing.assert_close(saved["lambda_"], loss.lambda_, rtol=1e-5, atol=0)
    assert saved["steps"] == 1
    row = train(small(epochs=1), tmp_path / "again").history[-1]
    assert row["lambda_inner_liver"] == saved["lambda_"][0, 1]
    assert row["lambda_outer_pancreas"] == saved["lambda_"][1, 4]


def test_the_network_knows_the_intensities_of_the_training_set_alone(small: Any, tmp_path: Path, store: Store) -> None:
    result = train(small(), tmp_path / "run")
    mean, deviation = store.moments(RunFolder(result.run).split().train)
    network = Checkpoint.load(RunFolder(result.run).best).part("network")
    np.testing.assert_allclose(network["mean"], mean, rtol=1e-6)
    np.testing.assert_allclose(network["deviation"], deviation, rtol=1e-6)


def test_best_is_the_epoch_with_the_highest_dice_and_scores_are_right(small: Any, tmp_path: Path, store: Store) -> None:
    result = train(small(epochs=6, method="ce", backbone="nnunet", learning_rate=0.01), tmp_path / "run")
    dice = [row["dice"] for row in result.history]
    assert len(set(dice)) > 2
    best = json.loads((tmp_path / "run" / "best.json").read_text())
    assert best["dice"] == max(dice)
    assert best["epoch"] == dice.index(max(dice)) + 1
    logits, labels = logits_and_labels(store, store.split().validation, tmp_path / "run", "best.safetensors")
    prediction = logits.argmax(1)
    expected = []
    for number in range(1, store.num_classes):  # one validation volume, so the mean over volumes is that volume's
        both = ((prediction == number) & (labels == number)).sum().item()
        either = (prediction == number).sum().item() + (labels == number).sum().item()
        expected.append(2 * both / either)
    assert best["dice"] == pytest.approx(sum(expected) / len(expected), rel=1e-6)
    wrong = (prediction != labels)[labels > 0].float().mean().item()
    assert best["ece"] >= abs(logits.softmax(1).amax(1)[labels > 0].mean().item() - (1 - wrong)) - 1e-6


def test_a_run_folder_explains_itself(small: Any, tmp_path: Path, store: Store) -> None:
    config = small(epochs=2, method_options={"rho": 0.2})
    result = train(config, tmp_path / "run")
    names = {path.name for path in (tmp_path / "run").iterdir()} - {".lock"}
    assert names == {
        *("config.yaml", "split.json", "environment.json", "metrics.csv", "multipliers.png", "tensorboard"),
        *("best.safetensors", "best.json", "last.safetensors", "last.json"),
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


def test_global_switches_are_put_back(small: Any, tmp_path: Path) -> None:
    before = torch.backends.cudnn.benchmark, torch.are_deterministic_algorithms_enabled()
    train(small(epochs=1, deterministic=True, precision="tf32"), tmp_path / "run")
    assert (torch.backends.cudnn.benchmark, torch.are_deterministic_algorithms_enabled()) == before


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
