"""The paper's figures, drawn from results alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from crac.benchmark.content import compared
from crac.benchmark.scores import MAIN, MASK, Group, patient_table
from crac.errors import require
from crac.report.plots import MARKERS, PALETTE, STYLE, critical_difference

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Drawing", "drawings"]

Drawing = tuple[str, str, Callable[[], "Figure"]]
"""Name of the file, what it shows, and how to draw it."""

LINES = ("--", ":", "-.")


def drawings(group: Group) -> Iterator[Drawing]:
    """Every figure a group has the results for."""
    if group.rows:
        yield f"reliability-{group.name}", "Accuracy against confidence, every method", partial(_reliability, group)
        yield f"logits-{group.name}", "Logits of the winning class and of the others", partial(_logits, group)
    if any("lambda_" in name for row in compared(group) for name in row.results[0].history):
        yield f"multipliers-{group.name}", "Multipliers over the epochs", partial(_multipliers, group)
    for method in group.sweeps:
        yield f"sweep-{method}-{group.name}", f"Sensitivity of {method} to its weight", partial(_sweep, group, method)
    if len(group.rows) > 2:
        yield from _rank_drawings(group)


def _rank_drawings(group: Group) -> Iterator[Drawing]:
    labels = [row.label for row in group.rows]
    for measure in MAIN:
        table = patient_table(group.rows, measure)
        if table.shape[1] > 1 and np.ptp(table, axis=0).any():  # without any difference there are no ranks
            name = f"ranks-{measure.heading.lower()}-{group.name}"
            what = f"Critical differences of {measure.heading}, test patients as blocks"
            yield name, what, partial(critical_difference, table, labels, bool(measure.higher))


def _grid(number: int, columns: int = 4, width: float = 2.5, height: float = 2.4) -> tuple[Figure, list[Any]]:
    require("matplotlib").use("agg", force=False)
    plt = require("matplotlib.pyplot")
    rows = math.ceil(number / columns)
    figure: Figure
    columns = min(columns, number)
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(
            rows, columns, figsize=(width * columns, height * rows + 0.4), sharex=True, sharey=True, squeeze=False,
            layout="constrained",
        )  # fmt: skip
    flat = list(axes.flat)
    for axis in flat[number:]:
        axis.set_visible(False)
    return figure, flat[:number]


def _reliability(group: Group) -> Figure:
    figure, axes = _grid(len(group.rows))
    for axis, row in zip(axes, group.rows, strict=True):
        bins = [result.pooled[MASK]["bins"] for result in row.results]
        counts = np.array([one["counts"] for one in bins], dtype=float)
        confidence, accuracy = (_pool(counts, [one[name] for one in bins]) for name in ("confidence", "accuracy"))
        edges = np.linspace(0, 1, counts.shape[1] + 1)
        axis.plot([0, 1], [0, 1], "--", color="#555555", linewidth=1)
        axis.bar((edges[1:] + edges[:-1]) / 2, accuracy, 1 / counts.shape[1], color=PALETTE[4], edgecolor="white")
        axis.plot(confidence, accuracy, color=PALETTE[0], marker=".", linewidth=1)
        ece, gap = (np.mean([result.pooled[MASK][name] for result in row.results]) for name in ("ece", "gap"))
        axis.set_title(f"{row.label}\nECE {ece:.3f}, gap {gap:+.3f}", fontsize=9)
        axis.set(xlim=(0, 1), ylim=(0, 1))
    figure.supxlabel("confidence", fontsize=10)
    figure.supylabel("accuracy", fontsize=10)
    figure.suptitle(f"{group.title}: voxels labelled foreground, all volumes and seeds pooled", fontsize=10)
    return figure


def _pool(counts: np.ndarray[Any, Any], means: Sequence[Sequence[float | None]]) -> np.ndarray[Any, Any]:
    values = np.array([[0.0 if value is None else value for value in one] for one in means])
    total = counts.sum(0)
    return np.where(total > 0, (counts * values).sum(0) / np.maximum(total, 1), np.nan)


def _logits(group: Group) -> Figure:
    figure, axes = _grid(len(group.rows))
    low, high = group.rows[0].results[0].logits["range"]
    sums = {}
    for row in group.rows:
        for kind in ("winning", "other"):
            counts = np.sum([result.logits[kind] for result in row.results], axis=0, dtype=float)
            sums[row.method, kind] = counts / max(counts.sum(), 1)
    seen = np.flatnonzero(np.sum(list(sums.values()), axis=0) > 1e-3)
    edges = np.linspace(low, high, len(next(iter(sums.values()))) + 1)
    for axis, row in zip(axes, group.rows, strict=True):
        for kind, colour in (("winning", PALETTE[1]), ("other", PALETTE[0])):
            axis.stairs(sums[row.method, kind], edges, fill=True, alpha=0.55, color=colour, label=kind)
        axis.set_title(row.label, fontsize=9)
        axis.set_xlim(edges[seen[0]], edges[seen[-1] + 1])
    axes[0].legend(frameon=False, fontsize=8)
    figure.supxlabel("logit", fontsize=10)
    figure.supylabel("share", fontsize=10)
    figure.suptitle(f"{group.title}: logits of the winning class and of the others", fontsize=10)
    return figure


def _multipliers(group: Group) -> Figure:
    rows = [row for row in compared(group) if any(name.startswith("lambda_") for name in row.results[0].history)]
    figure, axes = _grid(len(rows), columns=2, width=4.0, height=3.2)
    for axis, row in zip(axes, rows, strict=True):
        history = row.results[0].history
        columns = [name for name in history if name.startswith("lambda_")]
        regions = list(dict.fromkeys(name.split("_")[1] for name in columns))
        for name in columns:
            _, region, class_ = name.split("_", 2)
            mean = np.mean([result.history[name] for result in row.results], axis=0)
            axis.plot(
                history["epoch"], mean, color=PALETTE[group.classes.index(class_) % len(PALETTE)],
                linestyle=("-", *LINES)[regions.index(region) % 4], label=f"{class_}, {region}",
                marker="." if len(mean) < 3 else None, linewidth=1.3,
            )  # fmt: skip
        axis.set_title(row.label, fontsize=9)
        axis.set_yscale("symlog", linthresh=0.01)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, fontsize=8, loc="outside right center")
    figure.supxlabel("epoch", fontsize=10)
    figure.supylabel("multiplier λ", fontsize=10)
    figure.suptitle(f"{group.title}: multipliers, mean over seeds", fontsize=10)
    return figure


def _sweep(group: Group, method: str) -> Figure:
    option, rows = group.sweeps[method].option, group.sweeps[method].rows
    plt = require("matplotlib.pyplot")
    with plt.rc_context(STYLE):
        figure: Figure
        figure, axes = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
    for axis, measure in zip(axes, (MAIN[0], MAIN[2]), strict=True):
        known = [(weight, n) for weight, row in rows.items() if (n := row.number(measure)) is not None]
        axis.errorbar(
            [w for w, _ in known], [n.value for _, n in known], [n.sd or 0 for _, n in known],
            color=PALETTE[0], marker=MARKERS[0], capsize=3, label=f"{method}, by {option}",
        )  # fmt: skip
        for index, row in enumerate(compared(group)):
            number = row.number(measure)
            if number is not None:
                colour, sd = PALETTE[(1 + index) % len(PALETTE)], number.sd or 0
                axis.axhline(number.value, color=colour, linestyle=LINES[index % 3], label=row.label)
                axis.axhspan(number.value - sd, number.value + sd, color=colour, alpha=0.12, linewidth=0)
        axis.set(xlabel=option, ylabel=measure.heading)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, fontsize=9, loc="outside lower center", ncols=len(labels))
    figure.suptitle(f"{group.title}: mean and standard deviation over seeds", fontsize=10)
    return figure
