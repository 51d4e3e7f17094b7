"""A network and its calibrator as one module: compiled, exported, and saved with the network's weights."""

import pytest
import torch
from torch import nn

import crac
from crac.calibration import Calibrated


def calibrated(name: str, dims: int) -> tuple[Calibrated, torch.Tensor]:
    calibrator = crac.build_calibrator(name, 3, regions="slice")
    calibrator.weights.copy_(torch.rand_like(calibrator.weights) + 0.5)
    network = (nn.Conv2d if dims == 2 else nn.Conv3d)(1, 3, 3, padding=1)
    return Calibrated(network, calibrator).eval(), torch.randn(2, 1, *[6, 9, 8][-dims:])


@pytest.mark.parametrize("dims", [2, 3])
@pytest.mark.parametrize("name", crac.CALIBRATORS)
def test_it_compiles(name: str, dims: int) -> None:
    torch.compiler.reset()
    module, images = calibrated(name, dims)
    expected = module(images)
    torch.testing.assert_close(expected, module.calibrator(module.network(images)), rtol=0, atol=0)
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(images), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dims", [2, 3])
@pytest.mark.parametrize("name", crac.CALIBRATORS)
def test_it_exports(name: str, dims: int) -> None:
    module, images = calibrated(name, dims)
    program = torch.export.export(module, (images,))
    torch.testing.assert_close(program.module()(images), module(images), rtol=1e-6, atol=1e-6)
    other = torch.randn_like(images)
    torch.testing.assert_close(program.module()(other), module(other), rtol=1e-6, atol=1e-6)


def test_coefficients_travel_with_the_state() -> None:
    module, images = calibrated("class_region", 2)
    fresh = Calibrated(nn.Conv2d(1, 3, 3, padding=1), crac.build_calibrator("class_region", 3))
    fresh.load_state_dict(module.state_dict())
    torch.testing.assert_close(fresh(images), module(images), rtol=0, atol=0)
    assert not list(fresh.calibrator.parameters())
