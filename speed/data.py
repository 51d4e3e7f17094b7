"""How long preparing takes, and how long a batch: from disk, from memory, against what memory traffic alone costs.

    python speed/data.py --acdc ACDC --out speed/results/data_cpu.json

Without ``--acdc`` phantoms of the same number and size are prepared.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np
import torch

from crac.data import Augmentation, Batches, Store, phantom, prepare


def seconds(batches: Batches, epochs: int = 3) -> dict[str, float]:
    """Milliseconds a batch: median and 95 % point, after a first epoch that warms the page cache."""
    times = []
    for epoch in range(epochs + 1):
        batches.set_epoch(epoch)
        iterator = iter(batches)
        while True:
            start = time.perf_counter()
            batch = next(iterator, None)
            if batch is None:
                break
            if batch.images.is_cuda:
                torch.cuda.synchronize()
            if epoch and len(batch.images) == batches.batch_size:
                times.append(1e3 * (time.perf_counter() - start))
    times.sort()
    return {
        "median_ms": round(median(times), 3),
        "p95_ms": round(times[int(0.95 * len(times))], 3),
        "batches": len(times),
    }


def floor(images: int, voxels: int) -> float:
    """Milliseconds to copy as many bytes as a batch reads (3 a voxel) and writes (12 a voxel)."""
    source = torch.zeros(15 * images * voxels // 2, dtype=torch.uint8)
    target = torch.empty_like(source)
    times = []
    for _ in range(200):
        start = time.perf_counter()
        target.copy_(source)
        times.append(time.perf_counter() - start)
    return round(1e3 * median(times), 3)


def round_trip(store: Store) -> dict[str, dict[str, float]]:
    """DSC of each class between the original labels and those that went through the recipe and back."""
    scores = []
    for name in store.cases:
        original, restored = store.original_label(name), store.restore(name, store.label(name))
        masks = ((original == value, restored == value) for value in range(1, store.num_classes))
        scores.append([2 * (a & b).sum() / max(a.sum() + b.sum(), 1) for a, b in masks])
    columns = zip(store.class_names[1:], np.array(scores).T, strict=True)
    return {name: {"mean": round(float(dsc.mean()), 4), "lowest": round(float(dsc.min()), 4)} for name, dsc in columns}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--acdc", type=Path, help="the real ACDC")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    result: dict[str, object] = {
        "command": "python speed/data.py" + (" --acdc ACDC" if args.acdc else ""),
        "cpu": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "load_before": [round(load, 1) for load in os.getloadavg()],  # what others were doing on these cores
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
    }
    with tempfile.TemporaryDirectory() as folder:
        raw = args.acdc or phantom.cardiac(Path(folder) / "raw", patients=100, size=220, slices=10)
        start = time.perf_counter()
        store = prepare("acdc", raw, Path(folder) / "store", jobs=args.jobs)
        result["prepare_acdc_s"] = {
            "seconds": round(time.perf_counter() - start, 1),
            "jobs": args.jobs,
            "volumes": len(store.cases),
        }
        start = time.perf_counter()
        Store.open(store.path).verify()
        result["verify_s"] = round(time.perf_counter() - start, 2)
        result["label_round_trip_dsc"] = round_trip(store)
        names = store.split().train
        for cache in ("mmap", "memory"):
            result[f"batch_16_slices_{cache}"] = seconds(Batches(store, names, 16, cache=cache))
        result["batch_16_slices_memory_augmented"] = seconds(
            Batches(store, names, 16, augment=Augmentation.named("light", mirror=True))
        )
        if torch.cuda.is_available():
            result["gpu"] = torch.cuda.get_device_name()
            for cache in ("memory", "device"):
                result[f"batch_16_slices_{cache}_to_gpu"] = seconds(
                    Batches(store, names, 16, cache=cache, device="cuda")
                )
        result["memory_traffic_floor_ms"] = floor(16, 192 * 192)
    text = json.dumps(result, indent=2)
    print(text)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
