"""A recorded step is the plain step."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from crac import build_loss
from crac.data import Batch
from crac.training.graph import WARM_UP, GraphedStep
from crac.training.step import InnerStep, step_generator

STEPS = WARM_UP + 6


def test_a_new_step_has_recorded_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: device)
    step = GraphedStep(SimpleNamespace(device="cuda:1"), nn.Identity(), build_loss("ce", 2), None)
    assert (step.graph, step.steps, step.stream) == (None, 0, "cuda:1")


def losses_of(method: str, recorded: bool) -> list[float]:
    """Train a small network on batches of which one is smaller than the others."""
    from lightning.fabric import Fabric

    fabric = Fabric(accelerator="cuda", devices=1)
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 3, 3, padding=1)).cuda()
    rate = torch.tensor(0.01, device="cuda")
    optimizer = torch.optim.Adam(network.parameters(), rate, fused=True, capturable=True)
    loss = build_loss(method, 3).cuda()
    network, optimizer = fabric.setup(network, optimizer)
    step = (GraphedStep if recorded else InnerStep)(fabric, network, loss, optimizer)
    values = []
    for number in range(STEPS):
        size = 3 if number == STEPS - 3 else 4
        images, labels = torch.rand(size, 1, 32, 48), torch.randint(3, (size, 32, 48))
        batch = Batch(images.cuda(), labels.cuda(), [""] * size)
        generator = step_generator(torch.device("cuda"), number)
        values.append(step(batch, generator))
    assert (getattr(step, "graph", None) is not None) == recorded
    return torch.stack(values).tolist()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("method", ["ce", "crac", "bwcr", "ml1ace", "ecp"])
def test_gpu_records_the_plain_step(method: str) -> None:
    plain, recorded = losses_of(method, recorded=False), losses_of(method, recorded=True)
    assert recorded == pytest.approx(plain, rel=1e-4)
    assert len(set(plain)) == STEPS
