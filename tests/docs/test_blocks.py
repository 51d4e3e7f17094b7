"""Every code block of every page is run, or says why not; every command on any page takes the options it is given."""

import argparse
import itertools
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.docs.blocks import PYTHON, SHELL, Block, blocks, pages, run_page

import crac
from common import ROOT
from crac.cli import COMMANDS, build_parser

RUN_BY = {
    "README.md": "tests/test_doctests.py",
    "CONTRIBUTING.md": "tests/integrations/test_docs.py",
    "docs/audit.md": "tests/evaluation/test_audit_page.py",
    "docs/calibrate.md": "tests/calibration/test_calibrate_page.py",
    "docs/data.md": "tests/data/test_data_page.py",
    "docs/guarantee.md": "tests/guarantees/test_guarantee_page.py",
    "docs/lightning.md": "tests/integrations/test_docs.py",
    "docs/monai.md": "tests/integrations/test_docs.py",
    "docs/prediction.md": "tests/models/test_prediction_page.py",
    "docs/pytorch.md": "tests/integrations/test_docs.py",
}
"""Pages whose Python needs things that a test of their own prepares."""
LOGITS, LABELS = torch.randn(2, 4, 16, 16), torch.randint(4, (2, 16, 16))
GIVEN: dict[str, dict[str, Any]] = {
    "docs/losses.md": {"logits": LOGITS, "labels": LABELS},
    "docs/method.md": {"crac": crac},
    "docs/metrics.md": {
        "batches": [(LOGITS, LABELS)],
        "prediction": LABELS.expand(2, 16, 16).numpy(),
        "labels": LABELS.numpy(),
        "num_classes": 4,
        "spacing": (2.5, 0.8, 0.8),
        "table": np.random.default_rng(0).random((4, 3)),
        "methods": ["a", "b", "c", "d"],
        "higher": [True, False, False],
        "ours_per_volume": np.random.default_rng(1).random(8),
        "theirs_per_volume": np.random.default_rng(2).random(8),
    },
}
"""What pages that show single lines take for granted."""
DATA = ("", "json", "text", "yaml")
THREADS = {
    "nnU-Net": {2763, 2102, 1337, 2389, 2902, 2781, 1741, 2856},
    "MONAI": {8505, 8935},
    "torchmetrics": {3510},
    "temperature_scaling": {23},
    "TotalSegmentator": {489, 379},
    "MedPy": {138},
}
"""Questions that people ask elsewhere, by the number of the thread."""


def waiting(page: str) -> list[Block]:
    """The blocks of a page that are to be run and that no other test runs."""
    todo = [block for block in blocks(page) if block.reason is None and block.language not in DATA]
    return [block for block in todo if not (page in RUN_BY and block.language in PYTHON)]


@pytest.mark.parametrize("page", [page for page in pages() if waiting(page)])
def test_page_runs_as_printed(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run_page(page, tmp_path, monkeypatch, **GIVEN.get(page, {}))
    printed = capsys.readouterr().out
    for name, value in re.findall(
        r"^    (\w[\w ]* \[\w+\]) +(-?\d\.\d{4})$", (ROOT / page).read_text("utf-8"), re.MULTILINE
    ):
        assert re.search(rf"{re.escape(name)} +\W +{value}", printed), f"{page} shows {name} {value}"


def test_links_lead_to_files() -> None:
    """Of pages that are not on the site, whose links the build checks."""
    for page in ("SECURITY.md", "THIRD_PARTY.md", "examples/README.md"):
        for target in re.findall(r"\]\(([^)#\s]+)", (ROOT / page).read_text(encoding="utf-8")):
            assert "://" in target or (ROOT / page).parent.joinpath(target).exists(), f"{page}: {target}"


@pytest.mark.parametrize(("page", "test"), RUN_BY.items())
def test_other_tests_take_the_blocks_from_the_page(page: str, test: str) -> None:
    assert any(block.reason is None for block in blocks(page, PYTHON))
    assert Path(page).name in (ROOT / test).read_text(encoding="utf-8")


def test_blocks_have_a_language_and_reasons_are_sentences() -> None:
    found = [block for page in pages() for block in blocks(page)]
    assert len(found) > 60
    for block in found:
        assert block.language, f"{block.page}:{block.line}"
        assert block.reason is None or len(block.reason.split()) > 3, f"{block.page}:{block.line}"
    for page in pages():
        text = (ROOT / page).read_text(encoding="utf-8")
        assert len(re.findall(r"^ *```", text, flags=re.MULTILINE)) == 2 * len(blocks(page)), page


def test_every_command_takes_its_options() -> None:
    checked = set()
    for block in (block for page in pages() for block in blocks(page, SHELL)):
        for words in block.commands:
            if words[0] == "crac" and "..." not in words:
                parses(words[1:], f"{block.page}:{block.line}")
                checked.add(words[1])
    assert checked == set(COMMANDS)


def test_every_question_has_an_answer_that_is_run() -> None:
    page, found = (ROOT / "docs/answers.md").read_text(encoding="utf-8"), []
    headings = [
        (page[: one.start()].count("\n"), one[1]) for one in re.finditer(r"^##+ .*\((.+)\)$", page, re.MULTILINE)
    ]
    for (line, thread), (end, _) in itertools.pairwise([*headings, (page.count("\n"), "")]):
        found += [thread]
        run = [block for block in blocks("docs/answers.md") if line < block.line < end and block.reason is None]
        assert any(block.language in (*PYTHON, *SHELL) for block in run), thread
    asked = {tool: set() for tool in THREADS}
    for thread in found:
        asked[thread.rpartition(" ")[0]].add(int(thread.rpartition(" ")[2]))
    assert asked == THREADS


def parses(words: list[str], place: str) -> None:
    """Fail with the place and argparse's sentence where a command would be refused."""
    parser = build_parser(words[0])

    def refuse(self: argparse.ArgumentParser, message: str) -> None:
        raise AssertionError(f"{place}: crac {' '.join(words)}: {message}")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(argparse.ArgumentParser, "error", refuse)
        parser.parse_args(words)
