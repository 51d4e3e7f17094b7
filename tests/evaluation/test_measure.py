"""Per-volume and pooled numbers, slices and volumes, logits and probabilities."""

import importlib
import math

import numpy as np
import pytest
import torch
from tests.evaluation.volumes import NAMES, volume

import crac
from crac.evaluation import Case, LoadedCases, Protocol, evaluate, measure
from crac.functional import region_map


def test_per_volume_is_the_mean_of_volumes_and_pooled_is_the_meter_of_all():
    volumes = [volume("one", seed=1), volume("two", (4, 20, 24), seed=2)]
    evaluation = evaluate(LoadedCases(volumes), Protocol(NAMES))
    meter = crac.CalibrationMeter(3)
    single = []
    for case in volumes:
        own = crac.CalibrationMeter(3)
        for m in (own, meter):
            m.update(logits=case.scores[None], labels=case.labels[None])
        single.append(own.compute().ece)
    summary = evaluation.summary()
    assert summary["per_volume"]["ece[label_foreground]"]["mean"] == pytest.approx(np.mean(single))
    assert summary["pooled"]["label_foreground"]["ece"] == pytest.approx(meter.compute().ece)
    assert np.mean(single) != pytest.approx(meter.compute().ece, abs=1e-9)
    assert (summary["volumes"], summary["patients"]) == (2, 2)


def test_rows_hold_the_public_functions_values():
    case = volume("one")
    row = measure(case, Protocol(NAMES, hd95="directed_max", unit="voxel", empty="zero", tolerance=2)).row
    predicted = case.scores.argmax(0)
    assert row["dsc.a"] == pytest.approx(float(crac.dice(predicted, case.labels, 3)[1]))
    assert row["hd95.b"] == crac.hd95(predicted == 2, case.labels == 2, (1, 1, 1), "directed_max")
    assert row["dsc"] == pytest.approx((row["dsc.a"] + row["dsc.b"]) / 2)
    assert (row["volume"], row["patient"], row["voxels"]) == ("one", "patient of one", 6 * 20 * 24)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("regions", ["slice", "volume"])
def test_a_volume_of_one_slice_is_measured_as_that_image(axis: int, regions: str) -> None:
    labels = torch.zeros(24, 20, dtype=torch.int64)
    labels[4:16, 3:15] = 1
    scores = 3 * torch.nn.functional.one_hot(labels.roll(3, 0), 2).movedim(-1, 0).float() + torch.randn(2, 24, 20)
    protocol = Protocol(("background", "organ"), regions=regions)
    flat = measure(Case("v", "p", scores, labels, (1.0, 1.0), True), protocol).row
    case = Case("v", "p", scores.unsqueeze(axis + 1), labels.unsqueeze(axis), (1.0, 1.0, 1.0), True, axis)
    row = measure(case, protocol).row
    assert row["hd95"] > 2
    assert row == pytest.approx(flat, nan_ok=True)


@pytest.mark.parametrize("protocol", ["paper", "clinical"])
def test_a_missed_organ_costs_the_diagonal(protocol):
    """A model that predicts nothing must not get an HD95 of 0."""
    case = volume("one")
    blind = case._replace(scores=torch.stack([torch.full(case.labels.shape, 9.0), *torch.zeros(2, *case.labels.shape)]))
    row = measure(blind, Protocol.named(protocol, NAMES)).row
    sides = (6, 20, 24) if protocol == "paper" else (6 * 5.0, 20 * 1.0, 24 * 1.5)
    assert row["hd95.a"] == row["hd95.b"] == row["hd95"] == pytest.approx(math.hypot(*sides))
    assert row["dsc"] == 0


def test_probabilities_give_what_logits_give():
    logits, probabilities = (measure(volume("v", from_logits=flag), Protocol(NAMES)).row for flag in (True, False))
    for row in (logits, probabilities):
        del row["volume"], row["patient"]
    assert probabilities == pytest.approx(logits, abs=1e-5)


def test_segmentation_scores_are_shared_between_equal_label_maps_only(monkeypatch):
    module = importlib.import_module("crac.evaluation.measure")
    calls, whole = [], module._segmentation
    monkeypatch.setattr(module, "_segmentation", lambda *rest: calls.append(1) or whole(*rest))
    case, shapes = volume("v"), {}
    cool = case._replace(scores=case.scores / 2)  # the same labels with less confidence
    other = case._replace(scores=-case.scores)
    rows = [measure(one, Protocol(NAMES), shapes).row for one in (case, cool, other)]
    assert len(calls) == 2
    assert rows[0]["hd95"] == rows[1]["hd95"] != rows[2]["hd95"]
    for one, row in zip((case, cool, other), rows, strict=True):
        assert measure(one, Protocol(NAMES)).row == pytest.approx(row, nan_ok=True)
    shared = evaluate(LoadedCases([cool]), Protocol(NAMES), jobs=2, shapes={})
    assert shared.rows[0] == pytest.approx(rows[1], nan_ok=True)


def test_outer_is_what_the_protocol_says():
    """Neighbourhoods of the volume, or of slices: along the axis the case names, else that of the largest spacing."""
    case = volume("v")
    turned = case._replace(
        scores=case.scores.movedim(1, 3), labels=case.labels.movedim(0, 2), spacing=(1.0, 1.5, 5.0), slice_axis=None
    )
    rows = {}
    for name, given, regions, expected in (
        ("volume", case, "volume", region_map(case.labels[None])),
        ("slice", case._replace(slice_axis=0), "slice", region_map(case.labels)),
        ("turned", turned, "slice", region_map(case.labels)),
        ("across", case._replace(slice_axis=2), "slice", region_map(case.labels.movedim(2, 0))),
    ):
        found = measure(given, Protocol(NAMES, masks=["all"], regions=regions))
        assert found.states["all"]["counts"][0][0, 1].sum() == int((expected == 1).sum()), name
        rows[name] = found.row
    assert rows["turned"]["ece.outer[all]"] == rows["slice"]["ece.outer[all]"] != rows["volume"]["ece.outer[all]"]
    assert rows["turned"]["hd95"] == rows["slice"]["hd95"]
    assert rows["slice"]["ece[all]"] == pytest.approx(rows["volume"]["ece[all]"])


def test_the_band_is_in_the_unit_of_the_protocol():
    """5 mm are one slice of 5 mm; 5 voxels are the whole volume along that axis."""
    case = volume("v")
    counts = {}
    for unit in ("mm", "voxel"):
        found = measure(case, Protocol(NAMES, masks=["band"], unit=unit, band=5))
        counts[unit] = found.states["band"]["counts"][0][0].sum()
    assert 0 < counts["mm"] < counts["voxel"] <= case.labels.numel()
