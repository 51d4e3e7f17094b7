"""State that version 0.1.0 saved still loads and means the same."""

import numpy as np
import pytest
import torch

import crac
from common import ROOT

LEGACY = ROOT / "tests" / "legacy" / "0.1.0"


def test_multipliers_of_0_1_0() -> None:
    loss = crac.CRaCLoss(3, radii=(1, 3))
    state = torch.load(LEGACY / "loss.pt", weights_only=True)
    loss.load_state_dict(state, strict=True)
    with np.load(LEGACY / "expected.npz") as expected:
        np.testing.assert_array_equal(loss.lambda_.numpy(), expected["lambda_"])
        np.testing.assert_array_equal(loss.rho.numpy(), expected["rho"])
        value = loss(torch.from_numpy(expected["logits"]), torch.from_numpy(expected["labels"]))
        assert value.item() == pytest.approx(float(expected["loss"]), rel=1e-6)
    saved = loss.state_dict()
    assert list(saved) == list(state)
    for name, tensor in state.items():
        assert torch.equal(saved[name], tensor)
