"""The pages about other tools, and the recipe for a loss: their Python runs as printed, their bundle loads."""

import json

import lightning.pytorch as pl
import pytest
import torch
from monai.bundle import ConfigParser
from tests.docs.blocks import blocks, python_of
from torch.utils.data import DataLoader, TensorDataset

import crac
from crac.integrations.monai import CalibrationMetric


class Segmenter(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.network = torch.nn.Conv2d(1, 4, 3, padding=1)

    def training_step(self, batch, _):
        return self.loss(self.network(batch[0]), batch[1])

    def validation_step(self, batch, _):
        self.log("val_loss", self.loss(self.network(batch[0]), batch[1]))

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters())


def names() -> dict[str, object]:
    network = torch.nn.Conv2d(1, 4, 3, padding=1)
    data = TensorDataset(torch.randn(4, 1, 16, 16), torch.randint(4, (4, 16, 16)))
    return {
        "Trainer": pl.Trainer,
        "epochs": 2,
        "logits": torch.randn(2, 4, 16, 16),
        "module": Segmenter(),
        "network": network,
        "optimiser": torch.optim.Adam(network.parameters()),
        "target": torch.randint(4, (2, 1, 16, 16)).float(),
        "train_batches": DataLoader(data, batch_size=2),
        "validation_batches": DataLoader(data, batch_size=2),
    }


@pytest.mark.parametrize("page", ["pytorch.md", "lightning.md", "monai.md"])
def test_python_of_the_page_runs(page: str, tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found, space = python_of(f"docs/{page}"), names()
    assert found
    for block in found:
        exec(block, space)
    if page == "pytorch.md":
        assert space["loss"].steps == 2
    if page == "lightning.md":
        space["trainer"].fit(space["module"], space["train_batches"], space["validation_batches"])
        assert space["module"].loss.steps == 2


def test_recipe_for_a_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    space: dict[str, object] = {}
    (recipe,) = python_of("CONTRIBUTING.md")
    exec("from __future__ import annotations\n" + recipe, space)
    monkeypatch.setitem(crac.METHODS, "logitnorm", space["LogitNormLoss"])
    loss = crac.build_loss("logitnorm", 3, alpha=0.5, ignore_index=9)
    logits, labels = torch.randn(1, 3, 4, 4), torch.randint(3, (1, 4, 4))
    labels[0, 0] = 9
    torch.testing.assert_close(loss.penalty(logits, labels), 0.5 * (logits[0, :, 1:] ** 2).mean())
    plain = crac.CELoss(3, ignore_index=9)(logits, labels)
    torch.testing.assert_close(loss(logits, labels), plain + loss.penalty(logits, labels))
    with pytest.raises(ValueError, match="alpha must be a number of at least 0; got -1"):
        crac.build_loss("logitnorm", 3, alpha=-1)
    with pytest.raises(ValueError, match="option of 'logitnorm' must be one of alpha, ignore_index,"):
        crac.build_loss("logitnorm", 3, beta=1)


def test_bundle_of_the_page_loads() -> None:
    parser = ConfigParser(json.loads(blocks("docs/monai.md", ["json"])[0].code))
    assert parser.get_parsed_content("multipliers").loss is parser.get_parsed_content("loss")
    assert isinstance(parser.get_parsed_content("ece"), CalibrationMetric)
