"""The scores of an epoch."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.training.runs import logits_and_labels

from crac.data import Store
from crac.training import train


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
