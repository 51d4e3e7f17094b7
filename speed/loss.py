"""Speed and memory of the loss on a CPU, forward and backward, beside its rivals and the memory floor.

python speed/loss.py --threads 1
"""

from __future__ import annotations

import argparse
import ctypes
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from measure import RESULTS, Timing, environment, least_bytes, make_batch, save
from report import table
from rivals import rivals

SHAPES = {"16x4x192x192 fp32": (16, 4, 192, 192), "2x4x48x96x96 fp32": (2, 4, 48, 96, 96)}
STATUS = Path("/proc/self/status")


def timed(call: Callable[[], Any], repeats: int) -> Timing:
    """Time calls one by one, after two to warm up."""
    times = []
    for _ in range(repeats + 2):
        started = time.perf_counter()
        call()
        times.append((time.perf_counter() - started) * 1e3)
    return Timing.of(times[2:])


def peak_memory(call: Callable[[], Any]) -> float:
    """Peak MiB that a call adds to the process (Linux only, 0 elsewhere)."""
    if not STATUS.exists():
        return 0.0

    def read(key: str) -> int:
        return int(next(line for line in STATUS.read_text().splitlines() if line.startswith(key)).split()[1])

    ctypes.CDLL(None).malloc_trim(0)  # give back what earlier calls freed
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    before = read("VmRSS")
    call()
    return (read("VmHWM") - before) / 2**10


def copy_bandwidth() -> float:
    """Bytes per second of a large copy, read and written."""
    source = torch.randn(1 << 25)
    target = torch.empty_like(source)
    return 2 * source.numel() * source.element_size() / (timed(lambda: target.copy_(source), 10).median / 1e3)


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=11)
    parser.add_argument("--compile", action="store_true", help="also torch.compile of the eager path (a minute)")
    parser.add_argument("--out", type=Path, default=RESULTS / "loss_cpu.json")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    bandwidth = copy_bandwidth()
    rows = []
    for name, shape in SHAPES.items():
        logits, labels = make_batch(shape, "cpu")
        floor = least_bytes(logits, labels) / bandwidth * 1e3
        torch.compiler.reset()
        for rival, loss in rivals(shape[1], "cpu", compiled=args.compile).items():

            def call(loss: Any = loss, logits: Any = logits, labels: Any = labels) -> Any:
                return torch.autograd.grad(loss(logits, labels), logits)

            timing = timed(call, args.repeats)
            extra = peak_memory(call) - logits.numel() * logits.element_size() / 2**20
            rows.append({"case": name, "rival": rival, "ms": timing, "extra_mib": max(extra, 0.0), "floor_ms": floor})
    result = environment() | {"copy_bytes_per_second": bandwidth, "rows": rows}
    save(args.out, result)
    print(table(result))


if __name__ == "__main__":
    main()
