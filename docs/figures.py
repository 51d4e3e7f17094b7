"""Draws the pictures of these pages that explain rather than report: ``python docs/figures.py``."""

import json
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.colors import ListedColormap
from PIL import Image
from torch.utils.data import DataLoader

import crac
from crac.calibration import build_calibrator
from crac.cli import main
from crac.data import phantom, prepare
from crac.data.contact_sheet import contact_sheet
from crac.functional import neighbourhood_proportions, phr, region_map
from crac.guarantees import Case, Guarantees

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


def dice() -> None:
    """Train the network of the examples with and without Dice, and draw its reliability on boundaries."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
    import phantoms

    train, test = phantoms.hearts(4, seed=0), phantoms.hearts(6, seed=2)
    figure, axis = plt.subplots(figsize=(5.2, 4), layout="constrained")
    axis.plot([0.3, 1], [0.3, 1], color="#999999", linestyle=":", label="calibrated")
    for weight, name, colour in ((0.0, "cross-entropy", "#0072B2"), (1.0, "cross-entropy and Dice", "#D55E00")):
        torch.manual_seed(0)
        network, loss = phantoms.network(), crac.build_loss("ce", num_classes=4, dice_weight=weight)
        optimiser = torch.optim.Adam(network.parameters(), lr=1e-2)
        for _ in range(30):
            for images, labels in DataLoader(train, batch_size=10, shuffle=True):
                optimiser.zero_grad()
                loss(network(images), labels).backward()
                optimiser.step()
        network.eval()
        meter = crac.CalibrationMeter(num_classes=4, mask="union_foreground")
        with torch.no_grad():
            meter.update(logits=network(test.tensors[0]), labels=test.tensors[1])
        part = meter.compute().by_region["outer"]
        shown = part.bins.counts > 20
        label = f"{name}: gap {part.gap:+.2f}"
        axis.plot(part.bins.confidence[shown], part.bins.accuracy[shown], "o-", color=colour, label=label)
    axis.set(xlabel="confidence", ylabel="accuracy", title="boundary pixels of patients it was not trained on")
    axis.legend(frameon=False)
    figure.savefig(HERE / "dice.png", dpi=90)


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


def page_of_an_audit() -> None:
    """Show parts of the page of docs/start.md."""
    root = Path(__file__).parents[1]
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, root / "examples" / "audit_data.py", "example"], cwd=folder, check=True)
        given = [f"--{name}={folder}/example/{name}" for name in ("probabilities", "labels")]
        names = ["--class-names", "background", "liver", "tumour"]
        main(["evaluate", *given, "--out", f"{folder}/audit", *names, "--jobs", "1", "--anonymous"])
        places = {"audit_page": "header", "audit_regions": "#reliability .figures.two", "audit_gap": "#gaps table"}
        parts_of(Path(folder) / "audit" / "report.html", places)


def page_of_the_demo() -> None:
    """Show a held-out heart of the demo."""
    with tempfile.TemporaryDirectory() as folder:
        main(["demo", "--out", f"{folder}/demo"])
        parts_of(Path(folder) / "demo" / "index.html", {"demo_slices": "#case-1 .views"})


def parts_of(path: Path, places: dict[str, str]) -> None:
    """Draw parts of a page, by name and selector, as a browser does; it needs Chromium and playwright."""
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 900, "height": 900}, device_scale_factor=1.25)
        page.goto(path.as_uri())
        page.wait_for_function("[...document.querySelectorAll('.case')].every((one) => one.dataset.ready)")
        for name, place in places.items():
            page.locator(place).screenshot(path=HERE / f"{name}.png")
        browser.close()


def badges() -> None:
    """Draw what pyproject.toml says as small pictures for the README, which shows nothing from elsewhere."""
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))
    versions = [text.rpartition(" ")[2] for text in project["project"]["classifiers"] if ":: Python :: 3." in text]
    torch_version = next(text for text in project["project"]["dependencies"] if text.startswith("torch"))
    shown = {
        "python": ("Python", " | ".join(versions)),
        "torch": ("torch", torch_version.removeprefix("torch>=") + " or newer"),
        "types": ("mypy", "strict" if project["tool"]["mypy"]["strict"] else "on"),
        "licence": ("licence", project["project"]["license"]),
    }
    for name, (left, right) in shown.items():
        split, width = 7 * len(left) + 12, 7 * (len(left) + len(right)) + 24
        text = f"""<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="20" role="img">
<title>{left}: {right}</title>
<rect width="{width}" height="20" rx="3" fill="#0072B2"/><rect width="{split}" height="20" rx="3" fill="#444"/>
<g fill="#fff" text-anchor="middle" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">
<text x="{split / 2}" y="14">{left}</text><text x="{(split + width) / 2}" y="14">{right}</text></g></svg>
"""
        (HERE / f"badge_{name}.svg").write_text(text, encoding="utf-8")


def made_up_patient(seed: int) -> Case:
    """A disc, and a network that draws it a little off."""
    rng = np.random.default_rng(seed)
    rows, columns = np.mgrid[:64, :64] - 31.5
    angle = np.arctan2(rows, columns)
    true = 18 + 3 * np.sin(3 * angle + seed) - np.hypot(rows, columns)
    seen = true + rng.normal(0, 1.2) + rng.normal(0, 1) * np.sin(2 * angle + rng.uniform(0, 6))
    second = 1 / (1 + np.exp(-0.8 * seen))
    return Case(np.stack([1 - second, second]), (true > 0).astype(np.int64), (1.0, 1.0), str(seed))


def core_contour_and_margin() -> None:
    found = Guarantees(2, 0.1).fit(made_up_patient(seed) for seed in range(40))
    case = made_up_patient(107)
    given = case.probabilities, case.spacing
    figure, axes = plt.subplots(1, 2, figsize=(9.5, 4.4), layout="constrained")
    pictures = (
        ("thresholds: certain and possible voxels", found.certain(given[0])[1], found.possible(given[0])[1]),
        ("margins: contour shrunk and grown", found.margin.core(*given)[1], found.margin(*given)[1]),
    )
    for axis, (title, inner, outer) in zip(axes, pictures, strict=True):
        axis.imshow(inner * 1.0 + outer, cmap=ListedColormap(["#f7f7f7", "#cfe3f1", "#56B4E9"]), vmin=0, vmax=2)
        axis.contour(case.probabilities[1] > 0.5, [0.5], colors="#0072B2", linewidths=1.6)
        axis.contour(case.labels, [0.5], colors="#D55E00", linewidths=1.6, linestyles="--")
        axis.set_title(title)
        axis.set_axis_off()
    axes[0].plot([], [], color="#0072B2", label="predicted contour")
    axes[0].plot([], [], "--", color="#D55E00", label="true contour")
    figure.legend(loc="outside lower center", ncols=2, frameon=False)
    figure.savefig(HERE / "guarantee_margin.png", dpi=80)


def volumes_with_intervals() -> None:
    """Draw what ``speed/volume_intervals.py`` measured on its first seed: test patients by their true volume."""
    found = json.loads((HERE.parents[1] / "speed" / "results" / "volume_intervals.json").read_text(encoding="utf-8"))
    titles = {
        "none": "as the network gives them",
        "class_region": "crac calibrate",
        "class_region_affine": "--method class_region_affine",
    }
    figure, axes = plt.subplots(1, len(titles), figsize=(11, 3.6), sharey=True, layout="constrained")
    name = next(iter(found["first_seed"]["none"]))
    for axis, (key, title) in zip(axes, titles.items(), strict=True):
        own = found["first_seed"][key][name]
        order = np.argsort(own["true"])
        true, low, high = (np.array(own[end])[order] / 1000 for end in ("true", "low", "high"))
        held, place = (low <= true) & (true <= high), np.arange(len(true))
        for chosen, colour, label in ((held, "#56B4E9", "interval"), (~held, "#D55E00", "interval that misses")):
            axis.vlines(place[chosen], low[chosen], high[chosen], color=colour, linewidth=1.6, label=label)
        axis.plot(place, true, ".", color="black", markersize=3, label="true volume")
        axis.set(title=f"{title}: {held.sum()} of {len(true)} held", xlabel="test patient, by volume")
        axis.title.set_fontsize(10)
    axes[0].set_ylabel(f"{name} hippocampus, ml")
    axes[0].legend(frameon=False, fontsize=8)
    figure.savefig(HERE / "guarantee_volumes.png", dpi=80)


if __name__ == "__main__":
    badges()
    regions()
    penalties()
    dice()
    temperature()
    contact_sheet_of_phantoms()
    page_of_an_audit()
    page_of_the_demo()
    core_contour_and_margin()
    volumes_with_intervals()
