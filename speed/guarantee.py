"""Time and memory of guarantees on one volume of 4 classes, by default of 600 x 512 x 512 voxels.

    OMP_NUM_THREADS=1 python speed/guarantee.py

The volume is counted once and then taken in by each guarantee as a calibration case. The rival is the plain way: whole
arrays in NumPy, and Euclidean distance transforms of the whole image (SciPy's) for the margin; both also run on a tenth
of the slices, for the rival would not fit into memory otherwise. The floor is reading the probabilities once. Seconds
are those of a clock on the wall; those of the processors, summed over threads, stand beside them. Distances are exact
in both, which is checked.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from scipy import ndimage

from crac.guarantees import Case, Margin, Referral, RiskControl, VolumeInterval
from crac.guarantees.base import Guarantee
from crac.guarantees.case import LabelledVolume, check_case
from crac.guarantees.margin import needed
from measure import RESULTS, environment, save

SPACING = (1.5, 0.8, 0.8)
CLASSES = 4
DTYPES = {"float16": torch.float16, "float32": torch.float32}


def volume(shape: tuple[int, int, int], dtype: torch.dtype) -> Case:
    """Three organs and a network whose contours are off by a few voxels, made plane by plane."""
    probabilities = torch.empty((CLASSES, *shape), dtype=dtype)
    labels = torch.empty(shape, dtype=torch.uint8)
    depth, rows, columns = (torch.linspace(-1, 1, size) for size in shape)
    y, x = torch.meshgrid(rows, columns, indexing="ij")
    noise = torch.randn((CLASSES, *shape[1:]), generator=torch.Generator().manual_seed(0)).mul_(0.2)
    organs = ((-0.3, -0.3, 0.45), (0.25, 0.3, 0.35), (0.45, -0.35, 0.25))
    for plane, z in enumerate(depth):
        inside = [radius - torch.sqrt((0.6 * z) ** 2 + (y - a) ** 2 + (x - b) ** 2) for a, b, radius in organs]
        stacked = torch.stack([torch.zeros_like(y), *inside])
        labels[plane] = stacked.argmax(0)
        logits = 60 * (stacked + 0.01 * torch.sin(20 * x + 9 * z)) + noise.roll(7 * plane, 1)
        logits[0] -= 0.5
        probabilities[:, plane] = logits.softmax(0)
    return Case(probabilities, labels, SPACING, "patient")


def rival(case: Case) -> list[tuple[float, float]]:
    """Thresholds, volume and margins with whole arrays; returns the margins, outwards and inwards."""
    probabilities, labels = (np.asarray(part) for part in (case.probabilities.float(), case.labels))
    winners, margins = probabilities.argmax(0), []
    for number in range(1, CLASSES):
        np.sort(probabilities[number][labels == number])
        np.sort(probabilities[number], axis=None)
        (probabilities[number] * (1 - probabilities[number])).sum(dtype=np.float64)
        out = ndimage.distance_transform_edt(winners != number, SPACING)[labels == number].max()
        deep = ndimage.distance_transform_edt(winners == number, SPACING)[labels != number].max()
        margins.append((float(out), float(deep)))
    return margins


def _all(case: Case, parts: Sequence[Guarantee]) -> list[tuple[float | None, float]]:
    counted = check_case(case, CLASSES, "")
    for part in parts:
        part.observe(counted)
    return needed(counted)


def seconds(do: Callable[[], object]) -> dict[str, float]:
    start, used = time.perf_counter(), time.process_time()
    do()
    return {"wall": time.perf_counter() - start, "processors": time.process_time() - used}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", type=int, nargs=3, default=[600, 512, 512])
    parser.add_argument("--dtype", choices=DTYPES, default="float16")
    parser.add_argument("--no-rival", action="store_true")
    parser.add_argument("--out", type=Path, default=RESULTS / "guarantee_cpu.json")
    args = parser.parse_args(arguments)
    case = volume(tuple(args.shape), DTYPES[args.dtype])
    fnr, fdr = RiskControl(CLASSES), RiskControl(CLASSES, loss="fdr")
    parts = {"thresholds, missed": fnr, "thresholds, wrong": fdr, "margin": Margin(CLASSES)}
    parts |= {"volume": VolumeInterval(CLASSES), "flags": Referral(CLASSES)}
    kept: list[LabelledVolume] = []
    timed = {"check and count": seconds(lambda: kept.append(check_case(case, CLASSES, "")))}
    timed |= {name: seconds(lambda part=part: part.observe(kept[0])) for name, part in parts.items()}
    timed["all"] = {kind: sum(one[kind] for one in timed.values()) for kind in ("wall", "processors")}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    timed["floor"] = seconds(lambda: [case.probabilities[:, plane].sum() for plane in range(args.shape[0])])
    result = {"environment": environment(), "shape": [CLASSES, *args.shape], "dtype": args.dtype, "seconds": timed}
    result |= {"peak_gib": peak, "input_gib": (case.probabilities.nbytes + case.labels.nbytes) / 2**30}
    if not args.no_rival:
        tenth = args.shape[0] // 10
        middle = slice(args.shape[0] // 2 - tenth // 2, args.shape[0] // 2 + tenth // 2)
        small = Case(case.probabilities[:, middle].clone(), case.labels[middle].clone(), SPACING, "patient")
        found: dict[str, list[tuple[float | None, float]]] = {}
        result["a_tenth"] = {
            "ours": seconds(lambda: found.update(ours=_all(small, list(parts.values())))),
            "rival": seconds(lambda: found.update(rival=rival(small))),
        }
        np.testing.assert_allclose(found["ours"], found["rival"])
    for name, value in timed.items():
        print(f"{name:20} {value['wall']:6.2f} s, of processors {value['processors']:6.2f} s")
    print(f"peak {peak:.2f} GiB, of which the volume itself {result['input_gib']:.2f}; {result.get('a_tenth', '')}")
    save(args.out, result)


if __name__ == "__main__":
    main()
