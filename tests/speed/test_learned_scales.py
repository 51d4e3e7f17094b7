"""Learned scales beside the preset ``signed``: what is penalised, how scales move, and the row in a benchmark."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import crac
import learned_scales
from common import ROOT
from crac.benchmark import load_results
from crac.data import Store
from learned_scales import LearnedScalesLoss


def batch(size: tuple[int, ...] = (9, 8), scale: float = 2.0) -> tuple[torch.Tensor, torch.Tensor]:
    labels = torch.zeros(2, *size, dtype=torch.int64)
    labels[:, 2:7, 2:7] = 1
    labels[:, 3:, 5:] = 2
    return scale * torch.randn(2, 3, *size), labels


@pytest.mark.parametrize("size", [(9, 8), (9, 8, 7)])
@pytest.mark.parametrize("ignore", [None, 2])
def test_the_penalty_is_the_distance_to_scaled_shares(size: tuple[int, ...], ignore: int | None) -> None:
    logits, labels = batch(size)
    loss = LearnedScalesLoss(3, alpha=0.3, ignore_index=ignore)
    loss.multipliers.lambda_[0], loss.multipliers.lambda_[1] = 7.0, 2.0
    shares = crac.functional.neighbourhood_proportions(labels, 3, "replicate", 3, ignore)
    outer = crac.functional.region_map(labels, "replicate", (1,), ignore).bool().unsqueeze(1)
    distance = (torch.where(outer, 2 * shares, 7 * shares) - logits).abs().mean(1)
    expected = 0.3 * (distance if ignore is None else distance[labels != ignore]).mean()
    torch.testing.assert_close(loss.penalty(logits, labels), expected)


@pytest.mark.usefixtures("_forced_kernels")
@pytest.mark.parametrize("ignore", [None, 255])
def test_the_kernel_computes_the_same(device: str, ignore: int | None) -> None:
    logits, labels = (one.to(device) for one in batch())
    if ignore is not None:
        labels[:, :2] = ignore
    loss = LearnedScalesLoss(3, ignore_index=ignore).to(device)
    loss.multipliers.lambda_[1] = 2.0
    assert loss.setting(logits, labels) is not None
    parts = loss.fit_term(logits, labels) + loss.penalty_term(logits, labels)
    torch.testing.assert_close(loss(logits, labels), parts)
    torch.testing.assert_close(loss.penalty(logits, labels), loss.penalty_term(logits, labels))
    torch.testing.assert_close(loss.supervised(logits, labels), loss.fit_term(logits, labels))


def test_scales_fall_with_overconfidence_within_their_bounds() -> None:
    labels = torch.zeros(1, 24, 24, dtype=torch.int64)
    labels[:, 4:16, 4:16] = 1
    right = torch.nn.functional.one_hot(labels, 3).movedim(-1, 1).float()
    wrong = 9 * right.roll(3, -1)
    sure, price = LearnedScalesLoss(3), crac.CRaCLoss(3, preset="signed")
    for loss in (sure, price):
        loss.observe(wrong, labels)
        loss.update_multipliers()
    gap = price.multipliers.previous
    assert torch.all(gap > 0)
    torch.testing.assert_close(sure.multipliers.lambda_, 5 * (-3 * gap).exp())
    for _ in range(30):
        sure.observe(wrong, labels)
        sure.update_multipliers()
    assert torch.all(sure.scales == 0.5)
    for _ in range(30):
        sure.observe(0.3 * right, labels)  # right everywhere, at 40 %
        sure.update_multipliers()
    assert torch.all(sure.scales == 20)
    other = LearnedScalesLoss(3)
    other.load_state_dict(sure.state_dict())
    assert torch.equal(other.scales, sure.scales)


def test_importing_the_script_changes_no_method() -> None:
    assert crac.METHODS["nacl"] is crac.NACLLoss


@pytest.mark.slow
@pytest.mark.parametrize(("jobs", "splits"), [(1, [1]), (2, [0, 1])])
def test_the_row_stands_in_the_results(store: Store, tmp_path: Path, jobs: int, splits: list[int]) -> None:
    settings = {"width": 2, "batch_size": 8, "precision": "fp32", "accelerator": "cpu", "cache": "memory"}
    command = [sys.executable, learned_scales.__file__, "signed_acdc", "--out", str(tmp_path), "--jobs", str(jobs)]
    command += ["--data", f"acdc={store.path}", "--seeds", "0", "--epochs", "1", "--settings", json.dumps(settings)]
    command += ["--splits", *map(str, splits)]
    subprocess.run(command, check=True, cwd=ROOT)
    found = load_results([tmp_path / "results"])
    assert len(found) == 2 * 2 * len(splits)  # objectives, with and without calibration, and splits
    assert {result.cell.split for result in found} == set(splits)
    for result in found:
        assert (result.cell.base or result.cell.method) == "learned-scales"
        assert result.settings["method"] == "nacl"
        assert result.settings["method_options"]["scale"] == 5
    assert all(result.history["lambda_outer_liver"][0] != 5 for result in found if result.cell.as_trained)
