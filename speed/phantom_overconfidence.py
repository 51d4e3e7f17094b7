"""Is a network trained with cross-entropy on phantoms too sure of itself at boundaries?

    python speed/phantom_overconfidence.py --out speed/results/phantom_overconfidence.json

Trains a small U-Net on ten phantom patients, once with a steady annotator and once with the default one, and
compares confidence with accuracy on the three it has not seen, inside organs and at their boundaries.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from crac.data import Batches, phantom, prepare
from crac.functional import region_map


def block(inputs: int, outputs: int) -> nn.Sequential:
    layers = (nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU(), nn.Conv2d(outputs, outputs, 3, padding=1), nn.ReLU())
    return nn.Sequential(*layers)


class SmallUNet(nn.Module):
    """Three levels, 12 filters: enough for phantoms, quick on a CPU."""

    def __init__(self, width: int = 12) -> None:
        super().__init__()
        self.down = nn.ModuleList([block(1, width), block(width, 2 * width), block(2 * width, 4 * width)])
        self.up = nn.ModuleList([block(6 * width, 2 * width), block(3 * width, width)])
        self.out = nn.Conv2d(width, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Logits ``(B, 4, H, W)`` of images ``(B, 1, H, W)``."""
        fine = self.down[0](x)
        middle = self.down[1](F.max_pool2d(fine, 2))
        coarse = self.down[2](F.max_pool2d(middle, 2))
        middle = self.up[0](torch.cat([F.interpolate(coarse, scale_factor=2), middle], 1))
        return self.out(self.up[1](torch.cat([F.interpolate(middle, scale_factor=2), fine], 1)))


def third(tensor: Tensor) -> Tensor:
    """Every third row and column: the phantoms are drawn on about as coarse a grid."""
    return tensor[..., ::3, ::3]


def measure(folder: Path, waver_mm: float, epochs: int) -> dict[str, dict[str, float]]:
    """Confidence and accuracy in each region on the patients held out."""
    torch.manual_seed(0)
    raw = phantom.cardiac(folder / "raw", patients=10, size=64, slices=6, waver_mm=waver_mm)
    store = prepare("acdc", raw, folder / "store")
    split = store.split()
    train = Batches(store, split.train, batch_size=8)
    network = SmallUNet()
    optimiser = torch.optim.Adam(network.parameters(), 3e-3)
    for epoch in range(epochs):
        train.set_epoch(epoch)
        for batch in train:
            optimiser.zero_grad()
            F.cross_entropy(network(third(batch.images)), third(batch.labels)).backward()
            optimiser.step()
    confidences, hits, regions = [], [], []
    with torch.no_grad():
        for batch in Batches(store, split.validation + split.test, batch_size=8, shuffle=False):
            labels = third(batch.labels)
            confidence, prediction = network(third(batch.images)).softmax(1).max(1)
            confidences.append(confidence.flatten())
            hits.append((prediction == labels).flatten())
            regions.append(region_map(labels).flatten())
    confidence, hit, region = map(torch.cat, (confidences, hits, regions))
    result = {}
    for index, name in enumerate(("inner", "outer")):
        sure, right = (float(value[region == index].float().mean()) for value in (confidence, hit))
        result[name] = {"confidence": round(sure, 3), "accuracy": round(right, 3), "gap": round(sure - right, 3)}
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    result = {}
    for waver_mm in (0.0, 1.5):
        with tempfile.TemporaryDirectory() as folder:
            result[f"waver {waver_mm} mm"] = measure(Path(folder), waver_mm, args.epochs)
    text = json.dumps({"epochs": args.epochs, **result}, indent=2)
    print(text)
    args.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
