"""What every test may use: the real data if present, a hypothesis profile."""

import os
import signal
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, settings

from common import ROOT

# No deadline: the first example of a test pays for torch's warm-up.
settings.register_profile(
    "crac", deadline=None, max_examples=40, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("crac")

# A shell's background job ignores Ctrl-C and hands that on; the tests press it whatever they were started from.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Without a GPU the kernels run in Triton's interpreter, which has to be chosen before they are imported.
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder holding ``ACDC`` and ``Dataset004_Hippocampus``; the test is skipped when there is none."""
    folder = Path(os.environ.get("CRAC_TEST_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip("set CRAC_TEST_DATA to the folder with the real data sets")
    return folder


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


@pytest.fixture
def device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


@pytest.fixture
def _forced_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compute with the kernels on any device."""
    from crac import kernels
    from crac.kernels import launch

    monkeypatch.setattr(kernels, "mode", "force")
    monkeypatch.setattr(launch, "COUNT_PROGRAMS", 4)  # the interpreter runs them one after the other
