"""What version 0.1.0 wrote still opens, predicts the same and can be gone on with."""

import csv
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

import crac
from crac.cli import main
from crac.data import Store
from crac.training import resume

OLD = Path(__file__).parent / "legacy" / "0.1.0"


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A copy of the old store and run, the run's settings pointing at the store and asking for one more epoch."""
    shutil.copytree(OLD, tmp_path, dirs_exist_ok=True)
    file = tmp_path / "run" / "config.yaml"
    settings: dict[str, Any] = yaml.safe_load(file.read_text())
    file.write_text(yaml.safe_dump(settings | {"data": str(tmp_path / "store"), "epochs": 3}))
    return tmp_path


def rows(run: Path) -> list[dict[str, float]]:
    with (run / "metrics.csv").open() as file:
        return [{name: float(value) for name, value in row.items()} for row in csv.DictReader(file)]


def test_store(old: Path) -> None:
    store = Store.open(old / "store")
    store.verify()
    assert len({case.patient for case in store.cases.values()}) == 5


def test_prediction(old: Path) -> None:
    expected = np.load(OLD / "expected.npz")
    image = Store.open(old / "store").image(str(expected["case"]))
    probabilities = crac.load(old / "run", device="cpu").predict_prepared(torch.tensor(np.float32(image)))
    np.testing.assert_allclose(probabilities.numpy(), expected["probabilities"], rtol=0, atol=1e-6)


def test_loss() -> None:
    expected = {
        name: torch.from_numpy(array) for name, array in np.load(OLD / "expected.npz").items() if name != "case"
    }
    loss = crac.CRaCLoss(num_classes=3, radii=(1, 2))
    loss.load_state_dict(torch.load(OLD / "loss.pt", weights_only=True))
    assert torch.equal(loss.lambda_, expected["lambda_"])
    assert torch.equal(loss.rho, expected["rho"])
    assert loss(expected["logits"], expected["labels"]).item() == pytest.approx(expected["loss"].item(), rel=1e-6)


def test_resume(old: Path) -> None:
    before = rows(old / "run")
    result = resume(old / "run")
    assert result.finished
    assert [row["epoch"] for row in result.history] == [1, 2, 3]
    assert rows(old / "run")[:2] == before
    assert result.history[2]["lambda_inner_liver"] > before[1]["lambda_inner_liver"]


def test_evaluate(old: Path) -> None:
    assert main(["evaluate", str(old / "run"), "--split", "test", "--out", str(old / "audit"), "--device", "cpu"]) == 0
    assert (old / "audit" / "summary.json").is_file()
