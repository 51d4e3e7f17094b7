"""Pictures of a run: its learning curves, and the multipliers' paths over the epochs."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from crac.files import replacing
from crac.palette import LINES, PALETTE, pyplot

LABELS = {"lambda": "multiplier λ", "rho": r"penalty weight $\rho$"}


def plot_multipliers(history: Sequence[Mapping[str, float]], path: Path, title: str = "") -> None:
    """Draw lambda and rho of the rows of ``metrics.csv`` into a PNG, a colour per class and a line style per region.

    Classes that share their multipliers are drawn as one line, and a rho that stays as it was is left out.
    """
    plt = pyplot()
    own = {kind: [name for name in history[0] if name.startswith(f"{kind}_")] for kind in LABELS}
    still = all(row[name] == history[0][name] for row in history for name in own["rho"])
    kinds = ["lambda"] if still and len(history) > 1 else list(LABELS)
    figure, drawn = plt.subplots(1, len(kinds), figsize=(5.5 * len(kinds), 4), layout="constrained", squeeze=False)
    axes, epochs = drawn[0], [row["epoch"] for row in history]
    for axis, kind in zip(axes, kinds, strict=True):
        parts = {name: name.split("_", 2)[1:] for name in own[kind]}
        regions, classes = (list(dict.fromkeys(names)) for names in zip(*parts.values(), strict=True))
        first = {region: f"{kind}_{region}_{classes[0]}" for region in regions}
        shared = all(row[name] == row[first[region]] for row in history for name, (region, _) in parts.items())
        for name in first.values() if shared else own[kind]:
            region, class_ = parts[name]
            axis.plot(
                epochs,
                [row[name] for row in history],
                color=PALETTE[classes.index(class_) % len(PALETTE)],
                linestyle=LINES[regions.index(region) % len(LINES)],
                marker="." if len(epochs) < 3 else None,
                label=f"all classes, {region}" if shared else f"{class_}, {region}",
            )
        axis.set(xlabel="epoch", ylabel=LABELS[kind])
        axis.grid(alpha=0.3)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside right center", fontsize="small")
    figure.suptitle(title)
    with replacing(path) as partial:
        figure.savefig(partial, dpi=120, format="png")
    plt.close(figure)


def plot_curves(history: Sequence[Mapping[str, float]], path: Path, title: str = "", note: str = "") -> None:
    """Draw losses, Dice and ECE of the rows of ``metrics.csv`` into a PNG, with a note below."""
    plt = pyplot()
    figure, axes = plt.subplots(1, 3, figsize=(13, 4), layout="constrained")
    epochs = [row["epoch"] for row in history]
    classes = {name: name.removeprefix("dice_") for name in history[0] if name.startswith("dice_")}
    regions = {name: name.removeprefix("ece_") for name in history[0] if name.startswith("ece_")}
    panels = {
        "loss": {"train_loss": "training", "validation_loss": "validation"},
        "Dice on validation cases": {"dice": "mean", **classes},
        "ECE on validation cases": {"ece": "foreground", **regions},
    }
    for axis, (label, columns) in zip(axes, panels.items(), strict=True):
        for number, (name, line) in enumerate(columns.items()):
            values = [row.get(name, float("nan")) for row in history]
            marker = "." if len(epochs) < 3 else None
            width = 2.0 if number == 0 else 1.0
            axis.plot(epochs, values, color=PALETTE[number % len(PALETTE)], label=line, marker=marker, linewidth=width)
        axis.set(xlabel="epoch", ylabel=label)
        axis.grid(alpha=0.3)
        axis.legend(fontsize="small")
    axes[1].set_ylim(0, 1)
    figure.suptitle(title)
    if note:
        figure.supxlabel(note, fontsize="small")
    with replacing(path) as partial:
        figure.savefig(partial, dpi=120, format="png")
    plt.close(figure)
