"""The iterations of a training, and what is said when they give NaN."""

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.training.runs import logits_and_labels

from crac import build_loss
from crac.data import Store
from crac.models.checkpoint import Checkpoint
from crac.training import TrainingError, train


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
