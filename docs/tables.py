"""The tables of these pages that no command prints: ``python docs/tables.py``."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from crac.metrics.claims import patient_difference, side_of_zero
from crac.metrics.ranks import Interval

RESULTS = Path(__file__).parents[1] / "results"
SPEED = Path(__file__).parents[1] / "speed/results"
PLAIN = "nnUNetTrainer"
MEASURES = {"dsc": ("Dice", 3), "hd95": ("HD95, mm", 2), "nll[band]": ("NLL", 3), "ece[band]": ("ECE", 4)}
CALIBRATED = ("nll[band]", "ece[band]")


def nnunet() -> str:
    """nnU-Net's own trainer and ours: as trained, what differs from the former, and calibrated afterwards."""
    content = json.loads((RESULTS / "nnunet/hippocampus.json").read_text(encoding="utf-8"))
    trainers: dict[str, Any] = content["trainers"]
    names = [name for name, _ in MEASURES.values()]
    heads = [*names, *(f"{name}, calibrated" for name in names[2:]), "against nnU-Net's own, as trained"]
    lines = [f"| trainer | {' | '.join(heads)} |", f"| --- |{' ---: |' * (len(heads) - 1)} --- |"]
    for name, trainer in trainers.items():
        own, plain = (_columns(content, one) for one in (trainer, trainers[PLAIN]))
        cells = [f"{sum(own[key]) / len(own[key]):.{digits}f}" for key, (_, digits) in MEASURES.items()]
        gains = trainer["calibrated"]["class_region"]
        cells += [f"{gains[key]['after']:.{MEASURES[key][1]}f}" for key in CALIBRATED]
        said = [
            f"{label} {_signed(found, digits)}"
            for key, (label, digits) in MEASURES.items()
            if name != PLAIN and side_of_zero(found := patient_difference(own[key], plain[key]))
        ]
        lines.append(f"| `{name}` | {' | '.join(cells)} | {'; '.join(said)} |")
    return "\n".join(lines)


def equal(name: str) -> str:
    """The practical recipe and nnU-Net after as many seconds on one GPU, and how far they are apart."""
    content = json.loads((RESULTS / f"nnunet/equal_{name}.json").read_text(encoding="utf-8"))
    labels = [label.replace(", mm", ", voxels") for label, _ in MEASURES.values()]
    heads = ["epochs", "seconds of training", *(f"{label}, by seed" for label in labels)]
    lines = [f"| | {' | '.join(heads)} |", f"| --- |{' ---: |' * len(heads)}"]
    means = {}
    for side, label in {"nnunet": "nnU-Net v2", "crac": "`crac train`"}.items():
        runs = list(content["sides"][side].values())
        volumes = np.array([[run["volumes"][one] for one in sorted(run["volumes"])] for run in runs])
        owners = [one.partition("_frame")[0] for one in sorted(runs[0]["volumes"])]  # ACDC has two volumes of a heart
        by_seed = volumes.mean(axis=1)
        means[side] = [volumes.mean(axis=0)[[o == owner for o in owners]].mean(axis=0) for owner in sorted(set(owners))]
        cells = [", ".join(f"{value:.{n}f}" for value in by_seed[:, k]) for k, (_, n) in enumerate(MEASURES.values())]
        seconds = [run["training_s"] for run in runs]
        lines.append(
            f"| {label} | {runs[0]['epochs']} | {min(seconds):.0f} to {max(seconds):.0f} | {' | '.join(cells)} |"
        )
    apart = np.array(means["crac"]), np.array(means["nnunet"])
    cells = [
        _signed(patient_difference(apart[0][:, k], apart[1][:, k]), n) for k, (_, n) in enumerate(MEASURES.values())
    ]
    return "\n".join([*lines, f"| difference | | | {' | '.join(cells)} |"])


def augmented() -> str:
    """The practical recipe with the augmentation of several, for as many steps, and how far their Dice is apart."""
    content = json.loads((SPEED / "augment_dice.json").read_text(encoding="utf-8"))
    labels = {"none": "none", "light": "ours, `light`", "strong": "ours, `strong`", "monai": "MONAI's"}
    labels["nnunet"] = "nnU-Net's"
    heads = ["Dice, by seed", "Dice, against `light`", "Dice, against `strong`", "NLL", "ECE", "seconds an epoch"]
    lines = [f"| augmentation | {' | '.join(heads)} |", f"| --- |{' ---: |' * len(heads)}"]
    values = {arm: np.array([_rows(run) for run in runs.values()]) for arm, runs in content["arms"].items()}
    dice = {arm: own[..., 0].mean(axis=0) for arm, own in values.items()}  # a mean over seeds for each patient
    for arm, runs in content["arms"].items():
        by_seed = values[arm].mean(axis=1)
        cells = [", ".join(f"{one:.3f}" for one in by_seed[:, 0])]
        cells += [
            "" if other == arm else _signed(patient_difference(dice[arm], dice[other]), 3)
            for other in ("light", "strong")
        ]
        cells += [f"{by_seed[:, n].mean():.{MEASURES[key][1]}f}" for n, key in enumerate(content["columns"]) if n > 1]
        seconds = [run["epoch_s"] for run in runs.values()]
        lines.append(f"| {labels[arm]} | {' | '.join(cells)} | {min(seconds):.2f} to {max(seconds):.2f} |")
    return "\n".join(lines)


def _columns(content: dict[str, Any], trainer: dict[str, Any]) -> dict[str, list[float]]:
    return dict(zip(content["columns"], map(list, zip(*_rows(trainer), strict=True)), strict=True))


def _rows(run: dict[str, Any]) -> list[list[float]]:
    return [run["patients"][one] for one in sorted(run["patients"])]


def _signed(found: Interval, digits: int) -> str:
    return f"{found.estimate:+.{digits}f} [{found.low:+.{digits}f}, {found.high:+.{digits}f}]"


if __name__ == "__main__":
    print(nnunet(), equal("hippocampus"), equal("acdc"), augmented(), sep="\n\n")
