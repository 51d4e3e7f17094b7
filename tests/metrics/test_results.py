"""Every statistic against an independent reference."""

import numpy as np
import pytest
import torch
from sklearn.metrics import brier_score_loss, log_loss
from tests.metrics.meters import MASKS, measure, random_case

from crac.functional import region_map
from crac.metrics import CalibrationMeter


def binned_error(confidence: np.ndarray, hits: np.ndarray, bins: int) -> tuple[float, float]:
    """Mean and maximum calibration error over equal-width bins (a, b], in float64."""
    part = np.clip(np.ceil(confidence * bins) - 1, 0, bins - 1)
    errors = [
        (np.sum(part == b), abs(np.mean(confidence[part == b]) - np.mean(hits[part == b]))) for b in np.unique(part)
    ]
    return sum(n * e for n, e in errors) / len(confidence), max(e for _, e in errors)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("shape", [(3, 4, 31, 17), (1, 5, 9, 14, 11), (2, 2, 16, 16)])
def test_every_statistic_against_an_independent_reference(mask, shape):
    logits, labels = random_case(shape, seed=sum(shape))
    result = measure(logits, labels, mask=mask)
    s = torch.softmax(logits, 1).double().movedim(1, -1)
    predicted = s.argmax(-1)
    keep = {
        "label_foreground": labels > 0,
        "predicted_foreground": predicted > 0,
        "union_foreground": (labels > 0) | (predicted > 0),
        "all": labels > -1,
    }[mask]
    regions = region_map(labels)
    for chosen, got in (
        (keep, result),
        (keep & (regions == 0), result.by_region["inner"]),
        (keep & (regions == 1), result.by_region["outer"]),
    ):
        p, y, top = s[chosen].numpy(), labels[chosen].numpy(), predicted[chosen].numpy()
        assert got.count == len(y)
        if not len(y):
            continue
        confidence, correct = p.max(1), (top == y).astype(float)
        ece, mce = binned_error(confidence, correct, 15)
        assert got.ece == pytest.approx(ece, abs=1e-7)
        assert got.mce == pytest.approx(mce, abs=1e-6)
        assert got.gap == pytest.approx(confidence.mean() - correct.mean(), abs=1e-7)
        assert got.accuracy == pytest.approx(correct.mean())
        classes = range(logits.shape[1])
        class_errors = [binned_error(p[:, k], y == k, 15)[0] for k in classes]
        assert got.cece == pytest.approx(np.mean(class_errors), abs=1e-7)
        above = [p[:, k] > 1e-3 for k in classes]
        taces = [binned_error(p[a, k], y[a] == k, 15)[0] if a.any() else 0 for k, a in zip(classes, above, strict=True)]
        assert got.tace == pytest.approx(np.mean(taces), abs=1e-7)
        assert got.nll == pytest.approx(log_loss(y, p, labels=list(classes)), abs=1e-6)
        briers = [brier_score_loss((y == k).astype(int), p[:, k], pos_label=1) for k in classes]
        assert got.brier == pytest.approx(sum(briers), abs=1e-7)
        for k in classes:
            one = got.by_class[k]
            assert (one.labelled, one.predicted) == (np.sum(y == k), np.sum(top == k))
            assert one.ece == pytest.approx(class_errors[k], abs=1e-7)
            assert one.brier == pytest.approx(briers[k], abs=1e-7)
            assert one.gap == pytest.approx(p[:, k].mean() - np.mean(y == k), abs=1e-7)
            chosen_k = top == k
            gap = (confidence - correct)[chosen_k].mean() if chosen_k.any() else np.nan
            assert one.predicted_gap == pytest.approx(gap, abs=1e-7, nan_ok=True)


def test_tace_adaptive_against_sorting():
    logits, labels = random_case((4, 3, 96, 96), sharpness=5.0)
    p = torch.softmax(logits, 1).double().movedim(1, -1).reshape(-1, 3).numpy()
    y = labels.reshape(-1).numpy()
    expected = []
    for k in range(3):
        confidence, hits = p[p[:, k] > 1e-3, k], (y == k)[p[:, k] > 1e-3]
        parts = np.array_split(np.argsort(confidence, kind="stable"), 15)
        expected.append(sum(abs((confidence[i] - hits[i]).sum()) for i in parts) / len(confidence))
    found = measure(logits, labels, mask="all")
    assert found.tace_adaptive == pytest.approx(np.mean(expected), abs=5e-4)
    counted = [one.counted for one in found.by_class]
    assert counted == pytest.approx((p > 1e-3).mean(0).tolist(), abs=1e-4)
    assert max(counted) < 1


def test_nothing_counted_is_nan_and_not_an_error():
    result = CalibrationMeter(num_classes=3).compute()
    assert result.count == 0
    assert np.isnan([value for name, value in result.scalars().items() if name != "count"]).all()
    only_background = measure(random_case((1, 3, 8, 8))[0], torch.zeros(1, 8, 8, dtype=torch.long))
    assert np.isnan(only_background.ece)
