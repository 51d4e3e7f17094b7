"""Pictures of a run: its learning curves, and the multipliers' paths over the epochs."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from crac.files import replacing
from crac.palette import PALETTE, pyplot

STYLES = ("-", "--", ":", "-.")


def plot_multipliers(history: Sequence[Mapping[str, float]], path: Path, title: str = "") -> None:
    """Draw lambda and rho of the rows of ``metrics.csv`` into a PNG, a colour per class and a line style per region."""
    plt = pyplot()
    figure, axes = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
    epochs = [row["epoch"] for row in history]
    for axis, kind, label in zip(axes, ("lambda", "rho"), ("multiplier λ", r"penalty weight $\rho$"), strict=True):
        columns = [name for name in history[0] if name.startswith(f"{kind}_")]
        regions = list(dict.fromkeys(name.split("_")[1] for name in columns))
        classes = list(dict.fromkeys(name.split("_", 2)[2] for name in columns))
        for name in columns:
            _, region, class_ = name.split("_", 2)
            axis.plot(
                epochs,
                [row[name] for row in history],
                color=PALETTE[classes.index(class_) % len(PALETTE)],
                linestyle=STYLES[regions.index(region) % len(STYLES)],
                marker="." if len(epochs) < 3 else None,
                label=f"{class_}, {region}",
            )
        axis.set(xlabel="epoch", ylabel=label)
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
