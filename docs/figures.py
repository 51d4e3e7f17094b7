"""Draws the pictures of these pages that explain rather than report: ``python docs/figures.py``."""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.colors import ListedColormap
from PIL import Image

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
    contact_sheet_of_phantoms()
