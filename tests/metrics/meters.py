"""Cases to measure, and results that must agree."""

import pytest
import torch

from crac.metrics import CalibrationMeter, CalibrationResult

MASKS = ("label_foreground", "predicted_foreground", "union_foreground", "all")


def random_case(shape=(2, 4, 24, 20), seed=0, sharpness=3.0, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    logits = sharpness * torch.randn(shape, generator=generator)
    labels = (logits + 2 * torch.randn(shape, generator=generator)).argmax(1)
    return logits.to(dtype), labels


def measure(logits, labels, **arguments) -> CalibrationResult:
    meter = CalibrationMeter(num_classes=logits.shape[1], **arguments)
    meter.update(logits=logits, labels=labels)
    return meter.compute()


def assert_same(first: CalibrationResult, second: CalibrationResult, tolerance=1e-12) -> None:
    assert first.count == second.count
    for name, value in first.scalars().items():
        assert second.scalars()[name] == pytest.approx(value, abs=tolerance, nan_ok=True), name
    for one, two in zip(first.by_class, second.by_class, strict=True):
        for name, value in one.scalars().items():
            assert two.scalars()[name] == pytest.approx(value, abs=tolerance, nan_ok=True), name
        torch.testing.assert_close(one.bins.counts, two.bins.counts)
    for region in first.by_region:
        assert_same(first.by_region[region], second.by_region[region], tolerance)
