"""A model takes arrays and files alike, and says what is wrong in one sentence."""

import dataclasses
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.models.blobs import RECIPES, Threshold, threshold_model
from torch import Tensor

from crac.errors import InputError


def test_a_network_of_nan_is_refused(tmp_path: Path) -> None:
    class Broken(Threshold):
        def forward(self, images: Tensor) -> Tensor:
            return super().forward(images) * torch.nan

    model = dataclasses.replace(threshold_model(RECIPES["stored"]), network=Broken())
    with pytest.raises(InputError, match="image: the network answers with NaN"):
        model.predict(np.zeros((4, 4, 4)), spacing=(1, 1, 1))


@pytest.mark.parametrize(
    "error", [MemoryError(), torch.OutOfMemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory")]
)
def test_out_of_memory_says_what_to_lower(error: Exception) -> None:
    class Hungry(Threshold):
        def forward(self, images: Tensor) -> Tensor:
            raise error

    model = dataclasses.replace(threshold_model(RECIPES["stored"]), network=Hungry())
    with pytest.raises(InputError, match=r"^out of memory: lower batch_size \(now 16\)$"):
        model.predict(np.zeros((4, 4, 4)), spacing=(1, 1, 1))


def test_loading_and_resuming_unpickle_nothing(run: Path) -> None:
    """Every class or function that a pickle asks for is reported to Python's audit hooks."""
    code = """
import sys, crac, crac.models.model, lightning.fabric, torch.utils.tensorboard, matplotlib.pyplot
from crac.training import resume
def hook(event, arguments):
    if event == "pickle.find_class":
        raise RuntimeError(f"unpickled {arguments}")
sys.addaudithook(hook)
crac.load(sys.argv[1])
print(resume(sys.argv[1]).finished)
import pickle, fractions
try:
    pickle.loads(pickle.dumps(fractions.Fraction(1, 2)))
except RuntimeError:
    print("the hook works")
"""
    done = subprocess.run([sys.executable, "-c", code, str(run)], capture_output=True, text=True, timeout=200)
    assert done.stdout.splitlines()[-2:] == ["True", "the hook works"], done.stderr
