"""The page about calibration: its Python runs as printed, and does what the page says."""

import re
from pathlib import Path

import pytest
import torch
from tests.docs.blocks import python_of

import crac
from common import ROOT


def test_python_of_the_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    blocks = python_of("docs/calibrate.md")
    assert len(blocks) == 4
    monkeypatch.chdir(tmp_path)
    network = torch.nn.Conv2d(1, 4, 3, padding=1)
    with torch.no_grad():
        network.weight *= 20

    def batches() -> list[tuple[torch.Tensor, torch.Tensor]]:
        images = torch.randn(4, 2, 1, 24, 24)
        with torch.no_grad():
            logits = [network(part) / 3 for part in images]  # the network is three times too sure
        labels = [torch.distributions.Categorical(logits=part.movedim(1, -1)).sample() for part in logits]
        return list(zip(images, labels, strict=True))

    space: dict[str, object] = {"network": network, "validation_batches": batches(), "test_batches": batches()}
    space["images"] = torch.randn(1, 1, 24, 24)
    for block in blocks:
        exec(block, space)
    assert Path("calibration.json").is_file()
    assert "ECE" in capsys.readouterr().out
    assert space["after"].ece < space["before"].ece / 2
    assert space["after"].nll < space["before"].nll


def test_the_page_names_every_calibrator_and_note() -> None:
    page = (ROOT / "docs" / "calibrate.md").read_text()
    assert re.findall(r"^\| `(\w+)` \|", page, flags=re.MULTILINE) == list(crac.CALIBRATORS)
    source = (ROOT / "src" / "crac" / "calibration" / "base.py").read_text()
    for note in re.findall(r"^\| ([^|`]+?) \| ", page.partition("What the notes mean")[2], flags=re.MULTILINE)[1:]:
        assert all(part in source for part in note.split(", "))
