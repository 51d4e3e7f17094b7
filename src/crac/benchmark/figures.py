"""The figures of a benchmark: the paper's, from results alone, and maps of single slices."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from crac.benchmark.results import MAIN, MASK, Group, by_data
from crac.evaluation.archive import read_arrays
from crac.metrics.claims import LEAST_PATIENTS
from crac.palette import LINES, MARKERS, PALETTE, STYLE, outline_colour, pyplot
from crac.report.plots import critical_difference

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Drawing = tuple[str, str, Callable[[], "Figure"]]
"""Name of the file without its ending, what the figure shows, and a function that draws it."""

MAPS = "Best and worst volume of every method: outlines (white: label) and confidence"


def drawings(group: Group) -> Iterator[Drawing]:
    """Yield every figure a group has the results for."""
    if group.methods:
        yield f"reliability-{group.name}", "Accuracy against confidence, every method", partial(_reliability, group)
    if _with_logits(group):
        yield f"logits-{group.name}", "Logits of the winning class and of the others", partial(_logits, group)
    if "pooled.counted" in group.runs and group.runs["pooled.counted"].notna().all():
        what = "Voxels that TACE counts, and what it says about them"
        yield f"threshold-{group.name}", what, partial(_threshold, group)
    if _with_multipliers(group):
        yield f"multipliers-{group.name}", "Multipliers over the epochs", partial(_multipliers, group)
    for name, (option, _) in group.sweeps.items():
        to = "its weight" if option == "alpha" else option
        what = f"Sensitivity of {name.removesuffix(f'-{option}')} to {to}"
        yield f"sweep-{name}-{group.name}", what, partial(_sweep, group, name)
    if len(group.shown) > 2:
        for measure in MAIN:
            table = group.by_patient(measure.key, group.shown).to_numpy().T
            # Without any difference there are no ranks.
            if table.shape[1] >= LEAST_PATIENTS and np.ptp(table, axis=0).any():
                name = f"ranks-{measure.heading.lower()}-{group.name}"
                what = f"Critical differences of {measure.heading}, test patients as blocks"
                labels = [group.labels[method] for method in group.shown]
                yield name, what, partial(critical_difference, table, labels, bool(measure.higher))


def glances(groups: Sequence[Group]) -> Iterator[Drawing]:
    """Yield a figure of each data set and backbone whose networks were all measured in several ways."""
    for alike in by_data(groups):
        found = [ways for group in alike for ways in _ways(group).values()]
        if found and all(len(ways) > 1 for ways in found):
            title = f"{alike[0].label}, {alike[0].backbone}"
            what = f"{title}: what each loss costs in likelihood as trained, and what is left of it after calibration"
            yield f"glance-{alike[0].dataset}-{alike[0].backbone}", what, partial(_glance, alike)


def draw_maps(group: Group, folder: Path) -> Iterator[Drawing]:
    """Yield the figure of the slices that a benchmark kept of each method's best and worst volume, if it kept any.

    Args:
        group: The methods to show.
        folder: Folder of ``CELL.npz`` files.
    """
    files = {method: folder / f"{group.of[method][0].cell.name}.npz" for method in group.shown}
    if files := {method: path for method, path in files.items() if path.exists()}:
        yield f"maps-{group.name}", MAPS, partial(_maps, group, files)


def _axes(rows: int, columns: int, size: tuple[float, float], **options: Any) -> tuple[Figure, Any]:
    plt = pyplot()
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(rows, columns, figsize=size, squeeze=False, layout="constrained", **options)
    return figure, axes


def _grid(number: int, columns: int = 4, width: float = 2.5, height: float = 2.4) -> tuple[Figure, list[Any]]:
    """Return a figure with a number of small axes that share their scales."""
    rows, columns = math.ceil(number / columns), min(columns, number)
    figure, axes = _axes(rows, columns, (width * columns, height * rows + 0.4), sharex=True, sharey=True)
    for axis in axes.flat[number:]:
        axis.set_visible(False)
    return figure, list(axes.flat[:number])


def _titles(figure: Figure, x: str, y: str, title: str) -> Figure:
    figure.supxlabel(x, fontsize=10)
    figure.supylabel(y, fontsize=10)
    figure.suptitle(title, fontsize=10)
    return figure


def _ways(group: Group) -> dict[str, dict[str, str]]:
    """Return for each method as trained the rows that were measured on its networks, by what the tables add to it."""
    found = {method: {"as trained": method} for method in group.trained}
    for method in group.methods:
        if (base := group.of[method][0].cell.base) in found:
            found[base][group.labels[method].removeprefix(f"{group.labels[base]} + ")] = method
    return found


def _glance(groups: Sequence[Group]) -> Figure:
    """A row per loss, a panel per objective: the likelihood in every way of using the network."""
    labels = {method: group.labels[method] for group in groups for method in group.trained}
    methods = list(labels)
    kinds = list(dict.fromkeys(way for group in groups for ways in _ways(group).values() for way in ways))
    size = 1.6 + 3.6 * len(groups), 0.3 * len(methods) + 1.5
    figure, (axes,) = _axes(1, len(groups), size, sharex=True, sharey=True)
    for axis, group in zip(axes, groups, strict=True):
        measure = group.fair[0]
        for method, ways in _ways(group).items():
            row = methods.index(method)
            values = [group.by_patient(measure.key, [one])[one].mean() for one in ways.values()]
            axis.plot([min(values), max(values)], [row, row], color="#bbbbbb", linewidth=1, zorder=1)
            for way, value in zip(ways, values, strict=True):
                number = kinds.index(way)
                style = {"color": PALETTE[(number + 1) % len(PALETTE)], "marker": MARKERS[number % len(MARKERS)]}
                axis.plot(value, row, markersize=5, linestyle="", label=way, zorder=9 - number, **style)
        axis.set_title(f"{group.objective or group.title}, {group.volumes['patient'].nunique()} patients", fontsize=10)
        axis.grid(axis="y", color="#eeeeee")
        axis.set_axisbelow(True)
    axes[0].set_yticks(range(len(methods)), list(labels.values()), fontsize=9)
    axes[0].invert_yaxis()
    points = {line.get_label(): line for axis in axes for line in axis.get_lines()}
    handles = [points[kind] for kind in kinds]
    figure.legend(handles, kinds, frameon=False, fontsize=9, loc="outside upper center", ncols=len(kinds))
    where = "near foreground" if groups[0].fair_mask == "band" else "labelled or predicted foreground"
    figure.supxlabel(f"{groups[0].fair[0].heading}, voxels {where}; lower is better", fontsize=10)
    return figure


def _reliability(group: Group) -> Figure:
    figure, axes = _grid(len(group.shown))
    for axis, method in zip(axes, group.shown, strict=True):
        pooled = [result.pooled[MASK] for result in group.of[method]]
        counts = np.array([one["bins"]["counts"] for one in pooled], dtype=float)
        confidence, accuracy = (
            _pool(counts, [one["bins"][name] for one in pooled]) for name in ("confidence", "accuracy")
        )
        edges = np.linspace(0, 1, counts.shape[1] + 1)
        axis.plot([0, 1], [0, 1], "--", color="#555555", linewidth=1)
        axis.bar((edges[1:] + edges[:-1]) / 2, accuracy, 1 / counts.shape[1], color=PALETTE[4], edgecolor="white")
        axis.plot(confidence, accuracy, color=PALETTE[0], marker=".", linewidth=1)
        ece, gap = (np.mean([one[name] for one in pooled]) for name in ("ece", "gap"))
        axis.set_title(f"{group.labels[method]}\nECE {ece:.3f}, gap {gap:+.3f}", fontsize=9)
        axis.set(xlim=(0, 1), ylim=(0, 1))
    title = f"{group.title}: voxels labelled foreground, all volumes and seeds pooled"
    return _titles(figure, "confidence", "accuracy", title)


def _pool(counts: NDArray[np.float64], means: Sequence[Sequence[float | None]]) -> NDArray[np.float64]:
    """Return the mean of each bin over runs, weighted by their counts; NaN where a bin is empty in all."""
    values, total = np.nan_to_num(np.array(means, dtype=float)), counts.sum(0)
    return np.where(total > 0, (counts * values).sum(0) / np.maximum(total, 1), np.nan)


def _with_logits(group: Group) -> list[str]:
    return [method for method in group.shown if all(result.logits for result in group.of[method])]


def _logits(group: Group) -> Figure:
    methods = _with_logits(group)
    figure, axes = _grid(len(methods))
    low, high = group.of[methods[0]][0].logits["range"]
    shares = {}
    for method in methods:
        for kind in ("winning", "other"):
            counts = np.sum([result.logits[kind] for result in group.of[method]], axis=0, dtype=float)
            shares[method, kind] = counts / max(counts.sum(), 1)
    seen = np.flatnonzero(np.sum(list(shares.values()), axis=0) > 1e-3)
    edges = np.linspace(low, high, len(next(iter(shares.values()))) + 1)
    for axis, method in zip(axes, methods, strict=True):
        for kind, colour in (("winning", PALETTE[1]), ("other", PALETTE[0])):
            axis.stairs(shares[method, kind], edges, fill=True, alpha=0.55, color=colour, label=kind)
        axis.set_title(group.labels[method], fontsize=9)
        axis.set_xlim(edges[seen[0]], edges[seen[-1] + 1])
    axes[0].legend(frameon=False, fontsize=8)
    return _titles(figure, "logit", "share", f"{group.title}: logits of the winning class and of the others")


def _threshold(group: Group) -> Figure:
    """Class-wise calibration error against the share of voxels that the threshold leaves, with it and without it."""
    figure, ((axis,),) = _axes(1, 1, (7.5, 4.2))
    share = group.over_seeds("pooled.counted")["mean"]
    for colour, key, label in ((PALETTE[1], "tace", "TACE: probabilities above the threshold"),
                               (PALETTE[0], "cece", "class-wise ECE: all voxels")):  # fmt: skip
        error = group.over_seeds(f"{key}[{MASK}]")["mean"]
        axis.scatter(100 * share[group.methods], error[group.methods], s=18, color=colour, label=label)
    low = group.over_seeds(f"tace[{MASK}]")["mean"]
    for method in group.shown:
        axis.annotate(group.labels[method], (100 * share[method], low[method]), (3, 3), textcoords="offset points",
                      fontsize=6)  # fmt: skip
    axis.set(xlabel="voxels counted (%), mean over classes", ylabel="error", title=group.title)
    axis.legend(frameon=False, fontsize=8)
    return figure


def _with_multipliers(group: Group) -> list[str]:
    return [method for method in group.ours if any("lambda_" in name for name in group.of[method][0].history)]


def _multipliers(group: Group) -> Figure:
    methods = _with_multipliers(group)
    figure, axes = _grid(len(methods), columns=2, width=4.0, height=3.2)
    for axis, method in zip(axes, methods, strict=True):
        history = group.of[method][0].history
        prices: dict[str, dict[str, NDArray[np.float64]]] = {}
        for name in (name for name in history if name.startswith("lambda_")):
            _, region, class_ = name.split("_", 2)
            curves = [result.history[name] for result in group.of[method] if name in result.history]
            epochs = min(map(len, curves))  # of results of several folders some may have been trained for longer
            mean = np.mean([curve[:epochs] for curve in curves], axis=0)
            prices.setdefault(region, {})[class_] = mean
        for number, (region, own) in enumerate(prices.items()):
            first = own[group.classes[0]]
            shared = all(np.array_equal(first, mean) for mean in own.values())
            for class_, mean in ({"all classes": first} if shared else own).items():
                axis.plot(
                    history["epoch"][: len(mean)], mean, label=f"{class_}, {region}",
                    linestyle=LINES[number % len(LINES)],
                    color="black" if shared else PALETTE[group.classes.index(class_) % len(PALETTE)],
                    marker="." if len(mean) < 3 else None, linewidth=1.3,
                )  # fmt: skip
        axis.set_title(group.labels[method], fontsize=9)
        axis.set_yscale("symlog", linthresh=0.01)
    lines = {line.get_label(): line for axis in axes for line in axis.get_lines()}
    figure.legend(lines.values(), lines.keys(), frameon=False, fontsize=8, loc="outside right center")
    return _titles(figure, "epoch", "multiplier λ", f"{group.title}: multipliers, mean over seeds")


def _sweep(group: Group, name: str) -> Figure:
    option, methods = group.sweeps[name]
    figure, ((left, right),) = _axes(1, 2, (9, 3.4))
    for axis, measure in ((left, MAIN[0]), (right, MAIN[2])):
        numbers = group.over_seeds(measure.key)
        swept = numbers.loc[list(methods.values())].set_axis(list(methods)).dropna(subset="mean")
        axis.errorbar(
            swept.index, swept["mean"], swept["std"].fillna(0), color=PALETTE[0], marker=MARKERS[0], capsize=3,
            label=f"{name.removesuffix(f'-{option}')}, by {option}",
        )  # fmt: skip
        for index, (method, (mean, sd)) in enumerate(
            numbers.loc[group.ours].dropna(subset="mean").fillna({"std": 0}).iterrows()
        ):
            colour = PALETTE[(1 + index) % len(PALETTE)]
            axis.axhline(mean, color=colour, linestyle=LINES[1 + index % 3], label=group.labels[str(method)])
            axis.axhspan(mean - sd, mean + sd, color=colour, alpha=0.12, linewidth=0)
        axis.set(xlabel=option, ylabel=measure.heading)
    handles, labels = left.get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, fontsize=9, loc="outside lower center", ncols=len(labels))
    figure.suptitle(f"{group.title}: mean and standard deviation over seeds", fontsize=10)
    return figure


def _maps(group: Group, files: dict[str, Path]) -> Figure:
    """A row per method, of its first seed: outlines (label thin and white, prediction in colour) and confidence."""
    figure, axes = _axes(len(files), 4, (8.4, 2.1 * len(files) + 0.3))
    for line, (method, path) in zip(axes, files.items(), strict=True):
        slices = read_arrays(path)
        for index, which in enumerate(("best", "worst")):
            image, confidence = line[2 * index], line[2 * index + 1]
            # Slices that 0.1.0 kept have no aspect.
            aspect = float(slices[f"{which}_aspect"]) if f"{which}_aspect" in slices else 1.0
            image.imshow(slices[f"{which}_image"], cmap="gray", vmin=0, vmax=255, aspect=aspect)
            _outline(image, slices[f"{which}_label"], lambda _: "white", 0.6)
            _outline(image, slices[f"{which}_prediction"], outline_colour, 1.2)
            sure = slices[f"{which}_confidence"] / 255
            shown = confidence.imshow(sure, cmap="viridis", vmin=0.25, vmax=1, aspect=aspect)
            score, name = float(slices[f"{which}_dsc"]), str(slices[f"{which}_name"])
            image.set_title(f"{which}: {name}, DSC {score:.3f}", fontsize=7)
        line[0].set_ylabel(group.labels[method], fontsize=8)
        for axis in line:
            axis.set(xticks=[], yticks=[])
    figure.colorbar(shown, ax=axes[:, -1], fraction=0.05, label="confidence")
    return figure


def _outline(axis: Any, labels: NDArray[np.uint8], colour: Callable[[int], str], width: float) -> None:
    for number in np.unique(labels[labels > 0]).tolist():
        if not (labels == number).all():
            axis.contour(labels == number, [0.5], colors=colour(number), linewidths=width)
