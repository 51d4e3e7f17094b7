"""Pictures of calibration and of ranks, drawn with matplotlib in colours that colour-blind readers can tell apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from crac.errors import InputError, require
from crac.metrics.cells import Bins
from crac.metrics.ranks import friedman_rank, nemenyi, ranks
from crac.metrics.results import CalibrationResult
from crac.palette import MARKERS, PALETTE, STYLE, pyplot

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MANY = 6  # curves; the legend of more would cover them
FEW = 30  # voxels; the accuracy of fewer is mostly chance and is drawn as such
WIDTH = 6.0  # inches; at 100 dots per inch a picture is 600 pixels wide


def reliability(result: CalibrationResult) -> Figure:
    """Accuracy against confidence, bin by bin, and under it how many voxels each bin holds."""
    figure, axes = _figure()
    bins, edges = result.bins, _edges(result.bins)
    upper, width = axes[0], 1 / len(result.bins.counts)
    centre = edges[:-1] + width / 2
    confidence, accuracy = bins.confidence.numpy(), bins.accuracy.numpy()
    few = bins.counts.numpy() < FEW
    upper.bar(centre, np.where(few, np.nan, accuracy), width, color=PALETTE[4], edgecolor="white", label="accuracy")
    if (few & (bins.counts.numpy() > 0)).any():
        shown = np.where(few, accuracy, np.nan)
        upper.bar(
            centre, shown, width, color="#dddddd", edgecolor="white", label=f"accuracy of fewer than {FEW} voxels"
        )
    upper.bar(
        centre, confidence - accuracy, width, bottom=accuracy, color="none", edgecolor=PALETTE[1], hatch="///",
        linewidth=0.8, label="gap to confidence",
    )  # fmt: skip
    _finish(upper, "accuracy", f"ECE {result.ece:.4f}   gap {result.gap:+.4f}\n{_where(result)}")
    _histogram(axes[1], {"voxels": bins}, [PALETTE[0]])
    return figure


def reliability_by_class(result: CalibrationResult, class_names: Sequence[str]) -> Figure:
    """For each class, how often it is right to give it a probability."""
    pairs = {f"{name} (ECE {one.ece:.4f})": one.bins for name, one in zip(class_names, result.by_class, strict=True)}
    return _curves(pairs, f"Each class against the rest\n{_where(result)}", ("probability of the class", "frequency"))


def reliability_by_region(result: CalibrationResult) -> Figure:
    """Accuracy against confidence inside structures and on their boundaries."""
    pairs = {f"{name} (ECE {part.ece:.4f})": part.bins for name, part in result.by_region.items()}
    return _curves(pairs, f"Inside and on boundaries\n{_where(result)}", ("confidence", "accuracy"))


def gaps(result: CalibrationResult, class_names: Sequence[str]) -> Figure:
    """Mean confidence minus accuracy of the voxels predicted as each class, by region."""
    plt = pyplot()
    with plt.rc_context(STYLE):
        figure: Figure
        figure, axis = plt.subplots(figsize=(WIDTH, 1.4 + 0.5 * len(class_names)), layout="constrained")
        rows = np.arange(len(class_names))
        for number, (name, part) in enumerate(result.by_region.items()):
            values = np.nan_to_num([one.predicted_gap for one in part.by_class])
            offset = (number - (len(result.by_region) - 1) / 2) * 0.38
            hatch = "" if number == 0 else "///"
            bars = axis.barh(
                rows + offset, values, 0.34, color=PALETTE[number], hatch=hatch, edgecolor="white", label=name
            )
            shown = [f"{value:+.3f}" if abs(value) >= 0.0005 else "0.000" for value in values]
            labels = [text if one.predicted else "none" for text, one in zip(shown, part.by_class, strict=True)]
            axis.bar_label(bars, labels, padding=3, fontsize=9)
        axis.axvline(0, color="black", linewidth=0.8)
        axis.set_yticks(rows, class_names)
        axis.invert_yaxis()
        axis.margins(x=0.24)
        axis.set_xlabel("confidence - accuracy   (right of 0: overconfident)")
        axis.set_ylabel("predicted class")
        axis.set_title(f"Signed gap by class and region\n{_where(result)}", fontsize=11)
        axis.legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
    return figure


def critical_difference(
    table: ArrayLike, methods: Sequence[str], higher_is_better: bool | Sequence[bool], alpha: float = 0.05
) -> Figure:
    """Draw the mean ranks on a line; a bar joins methods between which Nemenyi's test finds no significant difference.

    Args:
        table: ``(methods, settings)``.
        methods: Their names.
        higher_is_better: For all columns, or for each.
        alpha: Level of the test.
    """
    plt, posthocs, pandas = pyplot(), require("scikit_posthocs"), require("pandas")
    ranked = ranks(table, higher_is_better, ties="average")
    if len(methods) != len(ranked):
        raise InputError(f"methods must name the {len(ranked)} rows of the table; got {len(methods)} names")
    mean = pandas.Series(friedman_rank(table, higher_is_better, ties="average"))
    with plt.rc_context(STYLE):
        figure: Figure
        figure, axis = plt.subplots(figsize=(WIDTH, 1.2 + 0.22 * len(mean)), layout="constrained")
        # Methods go by their number: of names, the bars would be drawn in another order each time.
        drawn = posthocs.critical_difference_diagram(
            mean, pandas.DataFrame(nemenyi(ranked)), ax=axis, alpha=alpha, label_fmt_left="{label}",
            label_fmt_right="{label}", color_palette=dict(zip(mean.index, PALETTE * len(mean), strict=False)),
        )  # fmt: skip
        for text in drawn["labels"]:
            number = int(text.get_text())
            text.set_text(f" {methods[number]} ({mean[number]:.1f}) ")
        axis.set_title(f"Mean rank, 1 is best; joined: no significant difference (Nemenyi, {alpha:g})", fontsize=11)
    return figure


def _figure() -> tuple[Figure, Any]:
    plt = pyplot()
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(2, 1, figsize=(WIDTH, 6.6), sharex=True, height_ratios=(3, 1), layout="constrained")
    return figure, axes


def _curves(pairs: Mapping[str, Bins], title: str, names: tuple[str, str]) -> Figure:
    figure, axes = _figure()
    colours = [PALETTE[number % len(PALETTE)] for number in range(len(pairs))]
    for number, (name, bins) in enumerate(pairs.items()):
        filled = bins.counts.numpy() > 0
        axes[0].plot(
            bins.confidence.numpy()[filled], bins.accuracy.numpy()[filled], color=colours[number],
            linewidth=1.5,
        )  # fmt: skip
        marker = MARKERS[number % len(MARKERS)]
        for chosen, fill, label in (
            (bins.counts.numpy() >= FEW, colours[number], name),
            (filled & (bins.counts.numpy() < FEW), "white", None),
        ):
            axes[0].plot(
                bins.confidence.numpy()[chosen], bins.accuracy.numpy()[chosen], marker, color=colours[number],
                markerfacecolor=fill, markersize=5.5, label=label,
            )  # fmt: skip
    if any(((bins.counts > 0) & (bins.counts < FEW)).any() for bins in pairs.values()):
        axes[0].plot([], [], "o", color="#555555", markerfacecolor="white", label=f"hollow: fewer than {FEW} voxels")
    _finish(axes[0], names[1], title)
    if len(pairs) > MANY:
        axes[0].get_legend().remove()
        figure.set_figheight(figure.get_figheight() + 0.13 * len(pairs))
        figure.legend(*axes[0].get_legend_handles_labels(), frameon=False, loc="outside lower center", ncols=2)
    _histogram(axes[1], pairs, colours)
    axes[1].set_xlabel(names[0])
    return figure


def _finish(axis: Axes, ylabel: str, title: str) -> None:
    axis.plot([0, 1], [0, 1], "--", color="#555555", linewidth=1, label="perfect")
    axis.set(xlim=(-0.01, 1.01), ylim=(-0.02, 1.03), ylabel=ylabel)
    axis.set_title(title, fontsize=11)
    axis.legend(frameon=False, loc="best", fontsize=10)


def _histogram(axis: Axes, pairs: Mapping[str, Bins], colours: Sequence[str]) -> None:
    """Share of the voxels in each bin, on a logarithmic scale: the ends hold thousands of times the middle."""
    for colour, bins in zip(colours, pairs.values(), strict=True):
        counts = bins.counts.numpy()
        axis.stairs(counts / max(counts.sum(), 1), _edges(bins), color=colour, linewidth=1.6)
    axis.set(yscale="log", xlabel="confidence", ylabel="share of voxels")


def _edges(bins: Bins) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.linspace(0, 1, len(bins.counts) + 1)


def _where(result: CalibrationResult) -> str:
    return f"{result.count:,} voxels, mask {result.mask}, {len(result.bins.counts)} equal-width bins"
