"""Without a GPU the kernels run in Triton's interpreter, which has to be chosen before they are imported."""

import os

import pytest
import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"


@pytest.fixture
def device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


@pytest.fixture(autouse=True)
def _forced(monkeypatch: pytest.MonkeyPatch) -> None:
    from crac import kernels
    from crac.kernels import launch

    monkeypatch.setattr(kernels, "mode", "force")
    monkeypatch.setattr(launch, "CENSUS_PROGRAMS", 4)  # the interpreter runs them one after the other
