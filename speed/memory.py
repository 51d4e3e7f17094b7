"""How far the memory that a training step is planned to need is from what it takes.

    python speed/memory.py --out speed/results/memory_cpu.json

Each case takes two whole steps (network with deep supervision, cross-entropy and Dice, backward, Adam) in a process of
its own; what it took is the process's peak beyond what it had before the network was made. Linux only.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

import crac
from crac.data import Intensity, Recipe
from crac.models.card import ModelCard
from crac.networks import halvings
from crac.training import TrainConfig
from crac.training.plan import GIB, step_cost
from measure import RESULTS, environment, save

CASES: list[dict[str, Any]] = [
    {"backbone": "nnunet", "width": 16, "classes": 3, "patch": [40, 56, 40], "batch": 9},
    {"backbone": "nnunet", "width": 32, "classes": 4, "patch": [64, 64, 64], "batch": 2},
    {"backbone": "nnunet", "width": 32, "classes": 4, "patch": [96, 96, 96], "batch": 2},
    {"backbone": "nnunet", "width": 32, "classes": 14, "patch": [64, 96, 96], "batch": 2},
    {"backbone": "nnunet", "width": 16, "classes": 4, "patch": [10, 160, 160], "batch": 4, "spacing": [10, 1.5, 1.5]},
    {"backbone": "unet", "width": 32, "classes": 4, "patch": [64, 64, 64], "batch": 2},
    {"backbone": "nnunet", "width": 32, "classes": 4, "patch": [192, 192], "batch": 16},
]


def card_of(case: dict[str, Any]) -> ModelCard:
    strides = None
    if case["backbone"] == "nnunet" and len(case["patch"]) == 3:
        strides = tuple(halvings(case["patch"], case.get("spacing", [1, 1, 1])))
    return ModelCard(
        backbone=case["backbone"],
        width=case["width"],
        dims=len(case["patch"]),
        patch_size=tuple(case["patch"]),
        class_names=tuple(map(str, range(case["classes"]))),
        channel_names=("image",),
        recipe=Recipe(name="none", orientation="stored", intensity=(Intensity(method="percentile", low=0, high=100),)),
        deep_supervision=True,
        strides=strides,
    )


def resident(name: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))


def took(case: dict[str, Any]) -> int:
    """Return the bytes that two steps took at most."""
    card = card_of(case)
    with torch.device("meta"):
        card.build()  # imports what is imported on the way
    shape = case["batch"], 1, *case["patch"]
    images, labels = torch.rand(shape), torch.randint(case["classes"], (shape[0], *shape[2:]))
    loss = crac.build_loss("ce", case["classes"], dice_weight=1.0)
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    before = resident("VmRSS")
    network = card.build().train()
    optimizer = torch.optim.Adam(network.parameters())
    for _ in range(2):
        crac.DeepSupervision(loss)(network(images), labels).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return resident("VmHWM") - before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=RESULTS / "memory_cpu.json")
    parser.add_argument("--case", type=json.loads, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.case:
        print(took(args.case))
        return
    config, rows = TrainConfig(data=Path()), []
    for case in CASES:
        command = [sys.executable, __file__, "--case", json.dumps(case)]
        taken = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        estimated = step_cost(card_of(case), config).bytes(case["batch"], case["patch"])
        rows.append({**case, "measured_gib": taken / GIB, "estimated_gib": estimated / GIB})
        print(f"{json.dumps(case)}: measured {taken / GIB:.2f}, estimated {estimated / GIB:.2f} GiB", flush=True)
    save(args.out, {**environment(), "rows": rows})


if __name__ == "__main__":
    main()
