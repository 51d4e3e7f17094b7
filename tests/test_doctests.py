"""Examples in docstrings and in the README are run, not only read."""

import doctest
import importlib
import pkgutil

import pytest
import torch
from tests.docs.blocks import python_of

import crac
from common import ROOT


def modules_with_examples():
    for info in pkgutil.walk_packages(crac.__path__, "crac."):
        source = ROOT / "src" / (info.name.replace(".", "/") + ("/__init__.py" if info.ispkg else ".py"))
        if ">>> " in source.read_text():
            yield info.name


@pytest.mark.parametrize("name", list(modules_with_examples()))
def test_docstring_examples(name):
    result = doctest.testmod(importlib.import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    assert result.attempted > 0
    assert result.failed == 0


def test_readme_training_loop():
    """The README's Python runs as printed, given a network and data, and the multipliers have moved."""
    blocks = python_of("README.md")
    assert blocks
    network = torch.nn.Conv2d(1, 4, 3, padding=1)
    data = [(torch.randn(2, 1, 16, 16), torch.randint(4, (2, 16, 16))) for _ in range(2)]
    names = {
        "network": network,
        "optimiser": torch.optim.Adam(network.parameters()),
        "train_batches": data,
        "validation_batches": data,
        "epochs": 2,
    }
    for block in blocks:
        exec(block, names)
    assert names["loss"].steps == 2
    assert (names["loss"].lambda_[1] > 1e-6).all()  # random labels: every pixel is on a boundary
