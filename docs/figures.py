"""Draws the pictures of these pages that explain rather than report: ``python docs/figures.py``."""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.colors import ListedColormap
from PIL import Image

from crac.calibration import build_calibrator
from crac.data import phantom, prepare
from crac.data.contact_sheet import contact_sheet
from crac.functional import neighbourhood_proportions, phr, region_map

HERE = Path(__file__).parent / "images"
SIDE = 40


def heart() -> torch.Tensor:
    """A small label map with the shapes of a short-axis slice: RV crescent, MYO ring, LV disc."""
    rows, columns = np.mgrid[:SIDE, :SIDE]
    left, right = np.hypot(rows - 20, columns - 25), np.hypot(rows - 19, columns - 15)
    labels = np.zeros((SIDE, SIDE), dtype=np.int64)
    labels[right < 10] = 1
    labels[left < 11] = 2
    labels[left < 7] = 3
    return torch.from_numpy(labels)[None]


def regions() -> None:
    labels = heart()
    prior = neighbourhood_proportions(labels, 4)[0, 2]
    bands = region_map(labels, radii=(1, 3))[0]
    figure, axes = plt.subplots(1, 4, figsize=(11, 3.1), layout="constrained")
    classes = ListedColormap(["#f0f0f0", "#56B4E9", "#E69F00", "#009E73"])
    axes[0].imshow(labels[0], cmap=classes)
    axes[0].set_title("labels")
    axes[1].imshow(region_map(labels)[0], cmap=ListedColormap(["#f0f0f0", "#333333"]))
    axes[1].set_title("regions: inner, outer (dark)")
    axes[2].imshow(bands, cmap=ListedColormap(["#f0f0f0", "#a0a0a0", "#333333"]))
    axes[2].set_title("three regions: radii=(1, 3)")
    image = axes[3].imshow(prior, cmap="viridis", vmin=0, vmax=1)
    axes[3].set_title("share of one class (ring)")
    figure.colorbar(image, ax=axes[3], shrink=0.8)
    for axis in axes:
        axis.set_axis_off()
    figure.savefig(HERE / "regions.png", dpi=75)


def penalties() -> None:
    z = torch.linspace(-2, 3, 200)
    figure, axis = plt.subplots(figsize=(6, 3.4), layout="constrained")
    for rho, style in ((0.1, "-"), (1.0, "--"), (10.0, ":")):
        value = phr(z, torch.tensor(rho), torch.tensor(0.5))
        axis.plot(z, value.clamp(max=4), style, color="#0072B2", label=f"rho = {rho:g}")
    axis.axvline(0, color="#999999", linewidth=0.8)
    axis.set(xlabel="constraint z (above 0: violated)", ylabel="PHR penalty, lambda = 0.5", ylim=(-0.5, 4))
    axis.legend(frameon=False)
    figure.savefig(HERE / "penalty.png", dpi=100)


def temperature() -> None:
    """What a temperature does to one voxel, and to the reliability of a network that is twice too sure."""
    figure, axes = plt.subplots(1, 3, figsize=(11, 3.3), layout="constrained", width_ratios=(1, 1, 0.9))
    logits, names = torch.tensor([1.0, 0.5, 5.0, 3.0]), ("background", "RV", "MYO", "LV")
    colours = ("#999999", "#56B4E9", "#E69F00", "#009E73")
    temperatures = torch.logspace(-0.6, 1, 100)
    shares = (logits / temperatures[:, None]).softmax(1)
    for name, colour, share in zip(names, colours, shares.T, strict=True):
        axes[0].semilogx(temperatures, share, color=colour, label=name)
    axes[0].axvline(1, color="#999999", linewidth=0.8)
    axes[0].set_xticks([0.25, 0.5, 1, 2, 4, 10], ["0.25", "0.5", "1", "2", "4", "10"])
    axes[0].set(xlabel="temperature T", ylabel="probability", title="one voxel: MYO stays ahead")
    axes[0].legend(frameon=False, fontsize=8)

    generator = torch.Generator().manual_seed(0)
    soft = torch.nn.functional.avg_pool2d(torch.nn.functional.one_hot(heart(), 4).movedim(-1, 1).float(), 5, 1, 2)
    fair = 5 * soft.repeat(200, 1, 1, 1) + 0.7 * torch.randn(200, 4, SIDE, SIDE, generator=generator)
    labels = torch.multinomial(fair.softmax(1).movedim(1, -1).reshape(-1, 4), 1, generator=generator)
    labels = labels.view(200, SIDE, SIDE)
    sure = 2 * fair
    calibrator = build_calibrator("class_region", 4).fit(lambda: [(sure[:100], labels[:100])])
    for title, colour, p in (
        ("as it is", "#D55E00", sure[100:].softmax(1)),
        ("calibrated", "#0072B2", calibrator(sure[100:])),
    ):
        confidence, predicted = p.max(1)
        right, bins = (predicted == labels[100:]).float(), (confidence * 10).long().clamp(max=9)
        rows = [(confidence[bins == b].mean(), right[bins == b].mean()) for b in range(10) if (bins == b).sum() > 200]
        axes[1].plot(*torch.tensor(rows).T, "o-", color=colour, label=title, markersize=4)
    axes[1].plot([0.2, 1], [0.2, 1], color="#999999", linewidth=0.8)
    axes[1].set(xlabel="the network says", ylabel="it is right", title="twice too sure, and repaired")
    axes[1].legend(frameon=False)

    image = axes[2].imshow(calibrator.temperature, cmap="viridis", vmin=1, vmax=3, aspect="auto")
    for row, values in enumerate(calibrator.temperature.tolist()):
        for column, value in enumerate(values):
            axes[2].text(column, row, f"{value:.2f}", ha="center", va="center", color="white")
    axes[2].set_xticks([0, 1], ["inner", "outer"])
    axes[2].set_yticks(range(4), names)
    axes[2].set_title("temperatures found (2 is right)")
    figure.colorbar(image, ax=axes[2], shrink=0.8)
    figure.savefig(HERE / "temperature.png", dpi=75)


def contact_sheet_of_phantoms() -> None:
    with tempfile.TemporaryDirectory() as folder:
        raw = phantom.cardiac(Path(folder) / "raw", patients=5, size=128, slices=6)
        store = prepare("acdc", raw, Path(folder) / "store")
        contact_sheet(store, Path(folder) / "sheet.png", columns=5, dpi=80)
        # Noise compresses badly; 200 colours are plenty for grey and three outlines.
        sheet = Image.open(Path(folder) / "sheet.png").convert("RGB").quantize(200, method=Image.Quantize.MAXCOVERAGE)
    sheet.save(HERE / "contact_sheet.png", optimize=True)


if __name__ == "__main__":
    regions()
    penalties()
    temperature()
    contact_sheet_of_phantoms()
