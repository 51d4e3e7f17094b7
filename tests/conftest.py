"""What every test may use: the real data if present, a hypothesis profile."""

import os
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
