"""Fitting a calibrator on 50 volumes of 300 x 512 x 512 voxels and 4 classes, mapped from disk in half precision.

    OMP_NUM_THREADS=2 python speed/calibrate.py --folder SCRATCH

Beside it what reading the same files takes (every byte once, in order, by one thread), what reading them and one
exponential a value takes, and two rivals that hold all voxels in one tensor: Fiducio's temperature (if it is installed)
and a plain L-BFGS temperature. The rivals get ever more voxels in processes of their own that may use 8 GiB, until they
fail. Files are dropped from the cache before they are read, so that every reader reads them from the disk. Where the
disk cannot hold 50 volumes, fewer are read in turn; the result says how many there were.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from scipy import ndimage
from torch import Tensor

import crac
from measure import RESULTS, environment, save

CLASSES = 4
SHARP = 2.0
SPARE = 12 * 2**30
LIMIT = 8 * 2**30
SIZES = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)


def make_volume(folder: Path, number: int, shape: tuple[int, int, int], noise: Tensor, uniform: Tensor) -> None:
    """Organs of different places and sizes, and logits, sure inside and unsure at boundaries, twice too large."""
    random = np.random.default_rng(number)
    z, y, x = np.ogrid[tuple(slice(-1, 1, complex(0, side)) for side in shape)]
    truth = np.zeros(shape, dtype=np.uint8)
    for k, radius in enumerate((0.32, 0.25, 0.18), start=1):
        centre = random.uniform(-0.4, 0.4, 3)
        distance = np.sqrt((z - centre[0]) ** 2 + (y - centre[1]) ** 2 + (x - centre[2]) ** 2)
        truth[distance < radius * random.uniform(0.8, 1.2) + 0.02 * np.sin(20 * x)] = k
    stored = np.lib.format.open_memmap(folder / f"{number:02d}.npy", "w+", np.float16, (CLASSES, *shape))
    highest = np.full(shape, -np.inf, dtype=np.float32)
    labels = np.zeros(shape, dtype=np.uint8)
    for k in range(CLASSES):
        soft = ndimage.uniform_filter((truth == k).astype(np.float32), 5)
        shifts = [int(shift) for shift in random.integers(noise.numel(), size=2)]
        logits = 14 * soft + noise.flatten().roll(shifts[0]).view(shape).numpy()
        stored[k] = SHARP * logits
        logits -= (-uniform.flatten().roll(shifts[1]).log()).log_().view(shape).numpy()  # Gumbel: a draw from softmax
        labels[logits > highest] = k
        np.maximum(highest, logits, out=highest)
    np.save(folder / f"{number:02d}.labels.npy", labels)


def files(folder: Path, volumes: int) -> list[Path]:
    there = sorted(folder.glob("[0-9][0-9].npy"))
    return [there[number % len(there)] for number in range(volumes)]


def forget(path: Path) -> None:
    """Drop a file from the cache of the system."""
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def mapped(folder: Path, volumes: int) -> Iterator[tuple[Tensor, Tensor]]:
    for path in files(folder, volumes):
        labels = path.with_suffix(".labels.npy")
        forget(path)
        forget(labels)
        pair = (np.load(one, mmap_mode="c") for one in (path, labels))
        logits, truth = (torch.from_numpy(one).unsqueeze(0) for one in pair)
        yield logits, truth


def read(folder: Path, volumes: int, power: bool = False) -> None:
    """Bring every byte into memory once, in order; take the exponential of every logit if asked to."""
    buffer = bytearray(2**23)
    for path in files(folder, volumes):
        for one in (path, path.with_suffix(".labels.npy")):
            forget(one)
            with one.open("rb", buffering=0) as file:
                while size := file.readinto(buffer):
                    if power and one == path:
                        torch.frombuffer(buffer, dtype=torch.float16, count=size // 2).float().exp_()


def fit(folder: Path, volumes: int, method: str) -> dict[str, object]:
    calibrator = crac.build_calibrator(method, CLASSES).fit(lambda: mapped(folder, volumes), weight="volume")
    about = {name: calibrator.fitted[name] for name in ("voxels", "passes", "notes")}
    return about | {"temperature": calibrator.temperature.tolist()}


def all_voxels(folder: Path, size: float) -> tuple[Tensor, Tensor]:
    """That many volumes in one tensor, as both rivals want them."""
    planes: list[Tensor] = []
    truth: list[Tensor] = []
    for logits, labels in mapped(folder, max(1, int(np.ceil(size)))):
        depth = min(labels.shape[1], round((size - len(planes)) * labels.shape[1]))
        planes.append(logits[:, :, :depth].float())
        truth.append(labels[:, :depth].long())
    return torch.cat(planes, 2), torch.cat(truth, 1)


def lbfgs(folder: Path, size: float) -> float:
    logits, labels = all_voxels(folder, size)
    temperature = torch.ones((), requires_grad=True)
    optimiser = torch.optim.LBFGS([temperature], max_iter=20, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimiser.zero_grad()
        loss = F.cross_entropy(logits / temperature, labels)
        loss.backward()
        return loss

    optimiser.step(closure)
    return temperature.item()


def fiducio(folder: Path, size: float) -> float:
    from fiducio import TemperatureScaling

    logits, labels = all_voxels(folder, size)
    return TemperatureScaling(optimizer="lbfgs", max_iter=20).fit(logits, labels).temperature


def child(args: argparse.Namespace) -> None:
    """One measurement in this process, printed as JSON."""
    if args.child in ("lbfgs", "fiducio"):
        resource.setrlimit(resource.RLIMIT_DATA, (LIMIT, LIMIT))
    start, before = time.perf_counter(), time.process_time()
    found: dict[str, object] = {}
    if args.child == "read":
        read(args.folder, args.volumes)
    elif args.child == "power":
        read(args.folder, args.volumes, power=True)
    elif args.child in ("lbfgs", "fiducio"):
        found["temperature"] = globals()[args.child](args.folder, args.size)
    else:
        found = fit(args.folder, args.volumes, args.child)
    found["seconds"] = time.perf_counter() - start
    found["cpu_seconds"] = time.process_time() - before
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    found["peak_resident_bytes"] = int(status["VmHWM"].split()[0]) * 1024
    print(json.dumps(found))


def measured(args: argparse.Namespace, what: str, size: float = 1.0) -> dict[str, object] | None:
    """A measurement in a process of its own; None if that fails, which for the rivals means memory."""
    command = [sys.executable, __file__, "--folder", str(args.folder), "--volumes", str(args.volumes)]
    done = subprocess.run(
        [*command, "--child", what, "--size", str(size)], capture_output=True, text=True, env=os.environ
    )
    if done.returncode:
        print(f"{what} {size}: {done.stderr.strip().splitlines()[-1] if done.stderr.strip() else done.returncode}")
        return None
    return json.loads(done.stdout.splitlines()[-1])


def rival(args: argparse.Namespace, what: str) -> dict[str, object]:
    """Grow until memory is short."""
    ran: dict[str, object] = {}
    for size in SIZES:
        found = measured(args, what, size)
        if found is None:
            return {"ran": ran, "failed_at_volumes": size}
        ran[str(size)] = found
        print(what, size, found, flush=True)
    return {"ran": ran, "failed_at_volumes": None}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "crac-calibrate")
    parser.add_argument("--volumes", type=int, default=50)
    parser.add_argument("--shape", type=int, nargs=3, default=(300, 512, 512))
    parser.add_argument("--most", type=int, help="different volumes on the disk (default: as many as it holds)")
    parser.add_argument("--out", type=Path, default=RESULTS / "calibrate_cpu.json")
    parser.add_argument("--rivals", type=Path, metavar="JSON", help="take the rivals' results from an earlier run")
    parser.add_argument("--keep", action="store_true", help="leave the volumes in the folder")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--size", type=float, default=1.0, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        child(args)
        return
    args.folder.mkdir(parents=True, exist_ok=True)
    shape = tuple(args.shape)
    each = int(np.prod(shape)) * (2 * CLASSES + 1)
    there = len(list(args.folder.glob("[0-9][0-9].npy")))
    room = there + max(0, shutil.disk_usage(args.folder).free - SPARE) // each
    number = min(args.volumes, room, args.most or args.volumes)
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(shape, generator=generator)
    uniform = torch.rand(shape, generator=generator).clamp_(1e-7, 1 - 1e-7)
    for each_number in range(there, number):
        make_volume(args.folder, each_number, shape, noise, uniform)
        print("made", each_number, flush=True)
    del noise, uniform
    load = [os.getloadavg()[0]]
    result = environment() | {"volumes": args.volumes, "different_volumes": number, "shape": [CLASSES, *shape]}
    result["bytes_read_in_a_pass"] = args.volumes * each
    for what in ("read", "power", "class_region", "read"):
        result[f"{what}_again" if what in result else what] = found = measured(args, what)
        print(what, found, flush=True)
    for measure in ("seconds", "cpu_seconds"):
        reading = min(result["read"][measure], result["read_again"][measure])
        result[f"times_reading_in_{measure}"] = {
            name: result[name][measure] / reading for name in ("power", "class_region")
        }
    if args.rivals:
        earlier = json.loads(args.rivals.read_text())
        result["rivals_measured"] = {
            name: earlier[name] for name in ("date", "command", "load_average_before_and_after")
        }
        result |= {name: earlier[name] for name in ("rivals_may_use_bytes", "lbfgs", "fiducio")}
        result["versions"]["fiducio"] = earlier["versions"].get("fiducio")
    else:
        result["rivals_may_use_bytes"] = LIMIT
        result["lbfgs"] = rival(args, "lbfgs")
        try:
            result["versions"]["fiducio"] = version("fiducio")
            result["fiducio"] = rival(args, "fiducio")
        except PackageNotFoundError:
            result["fiducio"] = "not installed"
    result["load_average_before_and_after"] = [*load, os.getloadavg()[0]]
    save(args.out, result)
    print(json.dumps(result["times_reading_in_seconds"], indent=2))
    if not args.keep:
        shutil.rmtree(args.folder)


if __name__ == "__main__":
    main()
