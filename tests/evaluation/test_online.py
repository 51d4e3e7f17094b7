"""Scores while a network trains are those of an evaluation."""

import csv
from pathlib import Path

import pytest

import crac
from crac.evaluation.run import evaluate_run


def test_the_scores_of_training_are_those_of_the_engine(run: Path) -> None:
    """Dice and ECE in metrics.csv of the best epoch are what evaluating the validation part gives."""
    with (run / "metrics.csv").open() as file:
        best = max(csv.DictReader(file), key=lambda row: float(row["dice"]))
    found = evaluate_run(run, crac.load(run, "cpu"), "validation")
    assert float(best["dice"]) == pytest.approx(found.per_volume()["dsc"]["mean"], abs=1e-6)
    pooled = found.pooled()["label_foreground"]
    assert float(best["ece"]) == pytest.approx(pooled.ece, abs=1e-6)
    for region, part in pooled.by_region.items():
        assert float(best[f"ece_{region}"]) == pytest.approx(part.ece, abs=1e-6)
