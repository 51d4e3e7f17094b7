"""Counting: every voxel once, on any number of threads, and the way a GPU counts."""

import numpy as np
import pytest
import torch
from tests.metrics.meters import MASKS, assert_same, measure, random_case

from crac.errors import InputError
from crac.metrics import CalibrationMeter
from crac.metrics import counts as counts_module


def test_forty_million_voxels_are_all_counted():
    """Where float32 counters stop at 2^24: confidence 0.99, accuracy 0.75."""
    voxels = 2000 * 2000
    probabilities = torch.tensor([0.01, 0.99], dtype=torch.float64).view(1, 2, 1, 1).expand(1, 2, 2000, 2000)
    labels = torch.ones(voxels, dtype=torch.uint8)
    labels[::4] = 0
    meter = CalibrationMeter(num_classes=2, mask="all")
    for _ in range(10):
        meter.update(probabilities=probabilities, labels=labels.view(1, 2000, 2000))
    result = meter.compute()
    assert result.count == 40_000_000
    assert int(result.bins.counts.sum()) == 40_000_000
    assert result.ece == pytest.approx(0.24, abs=1e-9)
    assert result.mce == pytest.approx(0.24, abs=1e-9)
    assert result.ace == pytest.approx(0.24, abs=1e-9)
    assert not result.ace_exact


def test_many_threads_count_the_same():
    logits, labels = random_case((1, 3, 30, 150, 150))
    threads = torch.get_num_threads()
    results = []
    try:
        for number in (1, 3):
            torch.set_num_threads(number)
            results.append(measure(logits, labels, mask="all"))
            assert torch.get_num_threads() == number
    finally:
        torch.set_num_threads(threads)
    assert_same(*results)


def test_of_tied_classes_the_first_is_predicted():
    probabilities = torch.full((1, 4, 2, 2), 0.25)
    meter = CalibrationMeter(num_classes=4, mask="all")
    meter.update(probabilities=probabilities, labels=torch.tensor([[[0, 0], [0, 3]]]))
    result = meter.compute()
    assert result.accuracy == 0.75
    assert [one.predicted for one in result.by_class] == [4, 0, 0, 0]
    assert int(result.bins.counts.sum()) == 4


def test_a_class_ruled_out_by_minus_infinity_is_fine():
    logits, labels = random_case((1, 3, 8, 8))
    logits[:, 2] = -torch.inf
    result = measure(logits, labels.clamp(max=1), mask="all")
    assert result.by_class[2].ece == 0
    assert np.isfinite(result.nll)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("mask", MASKS)
def test_gpu_counts_the_same_without_waiting(mask):
    logits, labels = random_case((4, 4, 64, 64))
    meter = CalibrationMeter(num_classes=4, mask=mask)
    device = torch.device("cuda")
    on_device = logits.to(device), labels.to(device)
    meter.update(logits=on_device[0], labels=on_device[1])
    torch.cuda.set_sync_debug_mode("error")
    try:
        meter.update(logits=on_device[0], labels=on_device[1])
    finally:
        torch.cuda.set_sync_debug_mode("default")
    expected = CalibrationMeter(num_classes=4, mask=mask)
    expected.update(logits=logits, labels=labels)
    expected.update(logits=logits, labels=labels)
    assert_same(expected.compute(), meter.compute(), tolerance=1e-6)


@pytest.mark.parametrize("from_logits", [True, False])
@pytest.mark.parametrize("mask", MASKS)
def test_counting_without_looking_at_values_gives_the_same(mask, from_logits, monkeypatch):
    """The way a GPU counts, on the CPU: no voxel is left out, ties and faults are always looked for."""
    logits, labels = random_case((2, 4, 40, 40))
    logits = logits.round()  # many ties
    results = []
    for look in (True, False):
        monkeypatch.setattr(counts_module, "may_look", lambda _, look=look: look)
        meter = CalibrationMeter(num_classes=4, mask=mask)
        scores = {"logits": logits} if from_logits else {"probabilities": torch.softmax(logits, 1)}
        meter.update(labels=labels, **scores)
        results.append(meter.compute())
    assert_same(*results)


@pytest.mark.parametrize("look", [True, False])
@pytest.mark.parametrize("from_logits", [True, False])
def test_faulty_voxels_are_all_counted_and_only_those_of_the_mask(look, from_logits, monkeypatch):
    monkeypatch.setattr(counts_module, "may_look", lambda _: look)
    logits, labels = random_case((1, 3, 16, 16))
    scores = logits if from_logits else torch.softmax(logits, 1)
    scores[:, :, 3, 4:11] = torch.nan
    name = "logits" if from_logits else "probabilities"
    meter = CalibrationMeter(num_classes=3, mask="all")
    with pytest.raises(InputError, match=r"^7 voxels"):
        meter.update(labels=labels, **{name: scores})
    inside = torch.ones_like(labels, dtype=torch.bool)
    inside[:, 3, 4:11] = False
    meter.update(labels=labels, mask=inside, **{name: scores})
    result = meter.compute()
    assert result.count == 256 - 7
    assert np.isfinite([result.ece, result.nll, result.brier]).all()
