"""Speed and memory of the metrics on one volume of 100 x 512 x 512 voxels, beside MONAI's and MedPy's.

    OMP_NUM_THREADS=2 python speed/metrics.py

Every competitor gets its input in the form it wants, made outside the timing; runs alternate, the best of each counts.
The floor is the time to read the input once at the bandwidth measured in the same run.
"""

import argparse
import datetime
import json
import os
import platform
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import medpy.metric.binary as medpy
import numpy as np
import torch
from monai.metrics import CalibrationErrorMetric, compute_hausdorff_distance
from scipy import ndimage

from crac import CalibrationMeter, hd95

SPACING = (2.5, 0.8, 0.8)
CLASSES = 4


def best(runs: int, *functions: Callable[[], object]) -> list[float]:
    times = [float("inf")] * len(functions)
    for _ in range(runs):
        for number, function in enumerate(functions):
            start = time.perf_counter()
            function()
            times[number] = min(times[number], time.perf_counter() - start)
    return times


def bandwidth() -> float:
    """Bytes read a second, by summing an array far larger than any cache."""
    values = torch.ones(2**27)
    (seconds,) = best(5, values.sum)
    return values.nbytes / seconds


def volume(shape: tuple[int, int, int]) -> tuple[torch.Tensor, torch.Tensor]:
    """Labels with the shapes of organs, and probabilities of a network that is sure inside and unsure on boundaries."""
    z, y, x = np.ogrid[tuple(slice(-1, 1, complex(0, side)) for side in shape)]
    labels = np.zeros(shape, dtype=np.uint8)
    for k, (centre, radius) in enumerate((((-0.3, -0.3), 0.45), ((0.25, 0.3), 0.35), ((0.45, -0.35), 0.25)), start=1):
        distance = np.sqrt((0.5 * z) ** 2 + (y - centre[0]) ** 2 + (x - centre[1]) ** 2)
        labels[distance < radius + 0.02 * np.sin(20 * x)] = k
    target = torch.from_numpy(labels)
    logits = torch.randn(1, CLASSES, *shape, generator=torch.Generator().manual_seed(0)).mul_(1.5)
    for k in range(CLASSES):
        soft = ndimage.uniform_filter((labels == k).astype(np.float32), (1, 5, 5))
        logits[0, k] += 9 * torch.from_numpy(soft)
    return logits.softmax(1), target.unsqueeze(0)


def class_wise_error(probabilities: torch.Tensor, labels: torch.Tensor, bins: int = 15) -> float:
    """Class-wise ECE by NumPy in float64, to tell whose number is right."""
    errors = []
    for k, row in enumerate(probabilities[0].flatten(1).numpy()):
        exact = row.astype(np.float64)
        place = np.clip(np.ceil(exact * bins).astype(int) - 1, 0, bins - 1)
        excess = exact - (labels.numpy().ravel() == k)
        errors.append(np.abs(np.bincount(place, excess, bins)).sum() / len(row))
    return float(np.mean(errors))


def calibration(probabilities: torch.Tensor, labels: torch.Tensor, runs: int, speed: float) -> dict[str, float]:
    hot = torch.stack([labels[0] == k for k in range(CLASSES)]).float().unsqueeze(0)

    def monai() -> torch.Tensor:
        metric = CalibrationErrorMetric(num_bins=15, right=True)
        metric(y_pred=probabilities, y=hot)
        return metric.aggregate()

    def ours() -> CalibrationMeter:
        meter = CalibrationMeter(CLASSES, bins=15, mask="all")
        meter.update(probabilities=probabilities, labels=labels)
        return meter

    one, two = best(runs, ours, monai)
    meter = ours()
    size = sum(part.nbytes for part in meter.state()["counts"])
    meter.update(probabilities=probabilities, labels=labels)
    assert sum(part.nbytes for part in meter.state()["counts"]) == size
    return {
        "crac_s": one,
        "monai_s": two,
        "times_as_fast_as_monai": two / one,
        "floor_s": (probabilities.nbytes + labels.nbytes) / speed,
        "state_bytes_after_1_and_2_volumes": size,
        "cece_crac": meter.compute().cece,
        "cece_monai": float(monai()),
        "cece_float64": class_wise_error(probabilities, labels),
    }


def hausdorff(probabilities: torch.Tensor, labels: torch.Tensor, runs: int, speed: float) -> dict[str, float]:
    prediction, reference = probabilities[0].argmax(0) == 1, labels[0] == 1
    arrays = prediction.numpy(), reference.numpy()
    batched = prediction[None, None], reference[None, None]

    def ours() -> float:
        return hd95(*arrays, SPACING)

    def monai() -> torch.Tensor:
        return compute_hausdorff_distance(*batched, include_background=True, percentile=95, spacing=SPACING)

    one, two = best(runs, ours, monai)
    start = time.perf_counter()
    theirs = medpy.hd95(*arrays, SPACING)
    three = time.perf_counter() - start
    return {
        "crac_s": one,
        "monai_s": two,
        "medpy_s": three,
        "times_as_fast_as_monai": two / one,
        "times_as_fast_as_medpy": three / one,
        "floor_s": 2 * reference.numel() / speed,
        "hd95_crac": ours(),
        "hd95_medpy": theirs,
    }


def cpu() -> str:
    names = Path("/proc/cpuinfo")
    lines = names.read_text().splitlines() if names.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", type=int, nargs=3, default=(100, 512, 512))
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "metrics_cpu.json")
    args = parser.parse_args()

    load = os.getloadavg()[0]
    speed = bandwidth()
    probabilities, labels = volume(tuple(args.shape))
    measured = {
        "calibration": calibration(probabilities, labels, args.runs, speed),
        "hd95": hausdorff(probabilities, labels, args.runs, speed),
    }
    for name, numbers in measured.items():
        print(f"\n{name}, {' x '.join(map(str, args.shape))}")
        for key, value in numbers.items():
            print(f"  {key:36} {value:>14.6g}")
    about = {
        "command": f"OMP_NUM_THREADS={torch.get_num_threads()} python {' '.join(sys.argv)}",
        "date": datetime.date.today().isoformat(),
        "cpu": cpu(),
        "threads": torch.get_num_threads(),
        "load_average_before_and_after": [load, os.getloadavg()[0]],
        "bandwidth_bytes_per_s": speed,
        "versions": {name: version(name) for name in ("torch", "numpy", "scipy", "monai", "medpy")},
    }
    args.out.write_text(json.dumps(about | measured, indent=2) + "\n")


if __name__ == "__main__":
    main()
