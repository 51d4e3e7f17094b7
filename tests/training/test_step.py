"""A step of the inner iteration never waits for the device."""

import pytest
import torch
from tests.training.watched import WAITING, Watched
from torch import nn

import crac
from crac.data import Batch
from crac.training.step import objective, step_generator, step_inputs


@pytest.mark.parametrize("method", list(crac.METHODS))
def test_nothing_is_read_from_the_device(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Label values are looked at on the CPU only.
    monkeypatch.setattr("crac.losses.base._check_values", lambda *_: None)
    loss, network = crac.build_loss(method, 4), nn.Conv2d(1, 4, 3, padding=1)
    batch = Batch(torch.rand(3, 1, 24, 20), torch.randint(4, (3, 24, 20)), ["a", "b", "c"])
    inputs = step_inputs(loss, batch, step_generator(torch.device("cpu"), 0))
    objective(network, loss, *inputs).backward()  # what is made once is made now
    with Watched() as watched:
        objective(network, loss, *inputs).backward()
    assert "convolution" in watched.seen
    assert not watched.seen & WAITING


def test_the_watch_sees_what_waits() -> None:
    values = torch.rand(4)
    with Watched() as watched:
        values.max().item()
        values[values > 0.5]
        torch.tensor([1.0, 2.0])
    assert {"_local_scalar_dense", "nonzero", "lift_fresh"} <= watched.seen
