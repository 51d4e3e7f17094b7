"""What the benchmarks share: batches to time on, where they ran, tables, result files."""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import platform
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

RESULTS = Path(__file__).parent / "results"


class Timing(NamedTuple):
    """Milliseconds: the median, and the 20th and 80th percentile."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, times: Sequence[float]) -> Timing:
        """Summarise single measurements."""
        ordered = sorted(times)
        return cls(statistics.median(ordered), ordered[len(ordered) // 5], ordered[len(ordered) * 4 // 5])


def make_batch(
    shape: Sequence[int], device: str, dtype: torch.dtype = torch.float32, channels_last: bool = False, seed: int = 0
) -> tuple[Tensor, Tensor]:
    """Random logits and labels in blobs, a class to each 16 pixels along every axis, with speckles."""
    generator = torch.Generator(device).manual_seed(seed)
    logits = torch.randn(tuple(shape), device=device, generator=generator, dtype=dtype)
    if channels_last:
        logits = logits.contiguous(memory_format=torch.channels_last if len(shape) == 4 else torch.channels_last_3d)
    size = shape[2:]
    labels = torch.randint(
        shape[1], (shape[0], *(-(-extent // 16) for extent in size)), device=device, generator=generator
    )
    for dim, extent in enumerate(size, start=1):
        labels = labels.repeat_interleave(16, dim).narrow(dim, 0, extent)
    speckle = torch.rand(labels.shape, device=device, generator=generator) < 0.01
    return logits.requires_grad_(), torch.where(speckle, 0, labels).contiguous()


def least_bytes(logits: Tensor, labels: Tensor) -> int:
    """Logits read once, labels read once, gradient written once."""
    return 2 * logits.numel() * logits.element_size() + labels.numel() * labels.element_size()


def environment(*more: str) -> dict[str, Any]:
    """Versions, those of ``more`` packages among them, machine, command and date."""
    packages = ("torch", "triton", "numpy", "monai", *more)
    versions = {}
    for name in packages:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = None
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "command": " ".join(["python", *sys.argv]),
        "python": platform.python_version(),
        "versions": versions,
        "cpu": _cpu(),
        "threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    names = [line for line in info.read_text().splitlines() if line.startswith("model name")] if info.exists() else []
    return names[0].partition(":")[2].strip() if names else platform.processor()


def save(path: Path, result: dict[str, Any]) -> None:
    """Write a result file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=2) + "\n")
