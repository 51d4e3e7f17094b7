"""Slabs: how a volume is cut changes nothing, and ignored voxels are in none."""

import pytest
import torch
from tests.metrics.meters import assert_same, measure, random_case

from crac.functional import region_map
from crac.metrics import CalibrationMeter


@pytest.mark.parametrize("index", [255, -100, 3])
def test_ignored_voxels_count_nowhere(index):
    logits, labels = random_case((2, 3, 24, 20))
    labels = labels.clone()
    hidden = torch.zeros(labels.shape, dtype=torch.bool)
    hidden[:, 3:9, 4:12] = True
    expected = CalibrationMeter(num_classes=3, mask="all")
    expected.update(logits=logits, labels=labels, mask=~hidden)
    labels[hidden] = index
    result = measure(logits, labels, mask="all", ignore_index=index)
    assert result.count == expected.compute().count
    assert result.ece == pytest.approx(expected.compute().ece, abs=1e-12)
    assert result.nll == pytest.approx(expected.compute().nll, abs=1e-12)


def test_regions_do_not_depend_on_how_a_volume_is_cut(monkeypatch):
    from crac.metrics import slabs

    logits, labels = random_case((2, 3, 9, 12, 14))
    whole = measure(logits, labels, mask="all")
    monkeypatch.setattr(slabs, "CPU_SLAB", 2 * 12 * 14)
    assert_same(whole, measure(logits, labels, mask="all"))
    assert whole.by_region["outer"].count == int(region_map(labels).sum())
    flat = measure(logits[:, :, 0], labels[:, 0], mask="all")
    assert flat.by_region["outer"].count == int(region_map(labels[:, 0]).sum())
