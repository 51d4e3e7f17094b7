"""Pictures have axis names and a legend, and draw what was measured."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch

from crac.errors import InputError
from crac.metrics import CalibrationMeter
from crac.report import plots


@pytest.fixture(scope="module")
def result():
    generator = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn((2, 3, 64, 64), generator=generator)
    labels = (logits + torch.randn(logits.shape, generator=generator)).argmax(1)
    meter = CalibrationMeter(num_classes=3, mask="all")
    meter.update(logits=logits, labels=labels)
    return meter.compute()


@pytest.mark.parametrize(
    "draw",
    [
        plots.reliability,
        lambda result: plots.reliability_by_class(result, "abc"),
        plots.reliability_by_region,
        lambda result: plots.gaps(result, "abc"),
    ],
)
def test_axes_are_named_and_explained(result, draw):
    figure = draw(result)
    try:
        first = figure.axes[0]
        assert first.get_ylabel()
        assert figure.axes[-1].get_xlabel()
        assert first.get_legend() is not None
        assert "mask all" in first.get_title()
        assert figure.get_figwidth() * 100 == pytest.approx(600)
        for text in [*first.get_xticklabels(), *first.get_legend().get_texts(), first.title]:
            assert text.get_fontsize() >= 9
    finally:
        plt.close(figure)


def test_bars_and_curves_are_the_bins(result):
    figure = plots.reliability(result)
    heights = np.array([bar.get_height() for bar in figure.axes[0].containers[0]])
    many = result.bins.counts.numpy() >= plots.FEW
    np.testing.assert_allclose(heights[many], result.bins.accuracy.numpy()[many])
    plt.close(figure)
    figure = plots.reliability_by_region(result)
    drawn = figure.axes[0].lines[0]
    bins = result.by_region["inner"].bins
    np.testing.assert_allclose(drawn.get_xdata(), bins.confidence.numpy()[bins.counts > 0])
    plt.close(figure)


def test_critical_difference_names_every_method():
    table = np.arange(3)[:, None] + np.random.default_rng(0).normal(size=(3, 12))
    figure = plots.critical_difference(table, ["first", "second", "third"], higher_is_better=False)
    words = " ".join(text.get_text() for text in figure.axes[0].texts)
    assert all(name in words for name in ("first", "second", "third"))
    plt.close(figure)
    with pytest.raises(InputError, match="3 rows"):
        plots.critical_difference(table, ["first"], higher_is_better=False)


def test_many_classes_are_told_apart_and_their_legend_covers_no_curve():
    number = 16
    generator = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn((1, number, 64, 64), generator=generator)
    meter = CalibrationMeter(num_classes=number, mask="all")
    meter.update(logits=logits, labels=logits.argmax(1))
    figure = plots.reliability_by_class(meter.compute(), [f"organ {k}" for k in range(number)])
    assert figure.axes[0].get_legend() is None
    (legend,) = figure.legends
    assert sum("organ" in text.get_text() for text in legend.get_texts()) == number
    looks = {(handle.get_color(), handle.get_marker()) for handle in legend.legend_handles[:number]}
    assert len(looks) == number
    figure.draw_without_rendering()
    assert legend.get_window_extent().ymax <= figure.axes[1].get_window_extent().ymin
    plt.close(figure)
