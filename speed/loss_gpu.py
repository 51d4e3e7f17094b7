"""Speed and memory of the loss on a GPU, forward and backward, beside its rivals and the memory floor.

python speed/loss_gpu.py               # checks agreement, then times; about two minutes
python speed/loss_gpu.py --explore     # looks for better tile sizes
python speed/loss_gpu.py --rehearse    # every step on tiny batches, also without a GPU; the times mean nothing

nnU-Net's own loss is timed beside ours where ``nnunetv2`` is installed.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

import crac
from agreement import disagreements, draw
from crac import kernels
from measure import RESULTS, Timing, environment, least_bytes, make_batch, save
from report import table
from rivals import Loss, nnunet_rivals, rivals, with_mode

Call = Callable[[Any, Any], Any]
Sets = list[tuple[Any, Any]]
ROUNDS = 5
CASES: dict[str, dict[str, Any]] = {
    "16x4x192x192 fp32": {"shape": (16, 4, 192, 192)},
    "64x4x512x512 fp32": {"shape": (64, 4, 512, 512)},
    "2x4x128x128x128 fp32": {"shape": (2, 4, 128, 128, 128)},
    "16x4x192x192 bf16 channels-last": {
        "shape": (16, 4, 192, 192),
        "dtype": torch.bfloat16,
        "channels_last": True,
    },
    "64x4x512x512 bf16 channels-last": {
        "shape": (64, 4, 512, 512),
        "dtype": torch.bfloat16,
        "channels_last": True,
    },
    "64x4x512x512 bf16": {"shape": (64, 4, 512, 512), "dtype": torch.bfloat16},
    "4x64x256x256 fp32": {"shape": (4, 64, 256, 256)},
}


NNUNET: dict[str, dict[str, Any]] = {
    "nnU-Net 64x4x512x512 fp32": {"shape": (64, 4, 512, 512)},
    "nnU-Net 2x4x128x128x128 fp32": {"shape": (2, 4, 128, 128, 128)},
    "nnU-Net 64x4x512x512 fp16, Dice compiled": {"shape": (64, 4, 512, 512), "dtype": torch.float16},
    "nnU-Net 2x4x128x128x128 fp16, Dice compiled": {"shape": (2, 4, 128, 128, 128), "dtype": torch.float16},
}
"""Shapes of the finest output; in fp16 nnU-Net trains under autocast."""

GPU = torch.cuda.is_available()
DEVICE = "cuda" if GPU else "cpu"
FUSED = "auto" if GPU else "force"
"""Mode of the kernels for fused losses: a rehearsal without a GPU runs them in Triton's interpreter."""


def copy_bandwidth() -> float:
    """Bytes per second of a large copy, read and written."""
    source = torch.randn(1 << (29 if GPU else 20), device=DEVICE)
    target = torch.empty_like(source)
    times = timed(lambda _x, _y: target.copy_(source), [(source, source)], 20)
    return 2 * source.numel() * source.element_size() / (times.median / 1e3)


def samples(call: Call, sets: Sets, repeats: int) -> list[float]:
    """Milliseconds of calls one by one, on inputs that take turns so that the cache holds none of them."""
    for number in range(5 if GPU else 1):
        call(*sets[number % len(sets)])
    if not GPU:
        started = time.perf_counter()
        call(*sets[0])
        return [(time.perf_counter() - started) * 1e3]
    events = [(torch.cuda.Event(True), torch.cuda.Event(True)) for _ in range(repeats)]
    torch.cuda.synchronize()
    for number, (start, end) in enumerate(events):
        start.record()
        call(*sets[number % len(sets)])
        end.record()
    torch.cuda.synchronize()
    return [start.elapsed_time(end) for start, end in events]


def timed(call: Call, sets: Sets, repeats: int) -> Timing:
    """Time calls one by one."""
    return Timing.of(samples(call, sets, repeats))


def replayed(call: Call, sets: Sets, repeats: int) -> Timing:
    """Time replays of a CUDA graph of one call on each input: the device's time without the launches."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for pair in sets:
            call(*pair)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = [call(*pair) for pair in sets]
    times = timed(lambda _x, _y: graph.replay(), sets, repeats)
    del kept
    return Timing(*(value / len(sets) for value in times))


def extra_memory(call: Call, sets: Sets) -> float:
    """Peak MiB beyond inputs and gradient; 0 without a GPU."""
    if not GPU:
        return 0.0
    call(*sets[0])
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    returned = call(*sets[0]) or ()
    torch.cuda.synchronize()
    gradient = sum(one.numel() * one.element_size() for one in returned if one is not None)
    return (torch.cuda.max_memory_allocated() - before - gradient) / 2**20


def both_passes(loss: Loss) -> Call:
    # nnU-Net gives its coarsest output no weight.
    return lambda logits, labels: torch.autograd.grad(loss(logits, labels), logits, allow_unused=True)


def input_sets(case: dict[str, Any]) -> Sets:
    logits, labels = make_batch(
        case["shape"], DEVICE, case.get("dtype", torch.float32), case.get("channels_last", False)
    )
    count = max(2, min(16, (1 << 28) // least_bytes(logits, labels))) if GPU else 1
    return [(logits, labels)] + [
        make_batch(case["shape"], DEVICE, logits.dtype, case.get("channels_last", False), seed)
        for seed in range(1, count)
    ]


def measure(name: str, case: dict[str, Any], bandwidth: float, compiled: bool) -> list[dict[str, Any]]:
    """Every rival on one shape."""
    sets = input_sets(case)
    plain = "dtype" not in case and case["shape"][1] < 64
    torch.compiler.reset()
    losses = rivals(case["shape"][1], DEVICE, compiled and plain, FUSED)
    if not plain:
        losses = {key: losses[key] for key in ("crac, eager", "cross-entropy alone", "crac, fused")}
    calls = {rival: (both_passes(loss), sets) for rival, loss in losses.items()}
    narrow = [(logits, labels.to(torch.uint8)) for logits, labels in sets]
    calls["crac, fused, uint8 labels"] = both_passes(losses["crac, fused"]), narrow
    if name == "64x4x512x512 fp32":
        calls |= {
            rival: (both_passes(with_mode(FUSED, loss)), sets) for rival, loss in variants(case["shape"][1]).items()
        }
        observing = crac.CRaCLoss(case["shape"][1]).to(DEVICE)
        observe = with_mode(FUSED, lambda logits, labels: observing.observe(logits.detach(), labels))
        calls["crac, fused observe"] = observe, sets
    return rows_of(name, calls, least_bytes(*sets[0]) / bandwidth * 1e3)


def measure_nnunet(name: str, case: dict[str, Any], bandwidth: float, compiled: bool) -> list[dict[str, Any]]:
    """nnU-Net's own loss with deep supervision, with and without our penalty."""
    half = case.get("dtype") == torch.float16
    sets = [pyramid(*pair) for pair in input_sets(case)[:2]]
    torch.compiler.reset()
    found = nnunet_rivals(case["shape"][1], len(sets[0][0]), DEVICE, compiled and half, FUSED)

    def under_autocast(loss: Loss) -> Loss:
        def compute(outputs: Any, targets: Any) -> Tensor:
            with torch.autocast(DEVICE, torch.float16, enabled=half and GPU):
                return loss(outputs, targets)

        return compute

    calls = {rival: (both_passes(under_autocast(loss)), sets) for rival, loss in found.items()}
    floor = sum(least_bytes(*level) for level in zip(*sets[0], strict=True)) / bandwidth * 1e3
    return rows_of(name, calls, floor)


def pyramid(logits: Tensor, labels: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    """Outputs and ``int16`` targets at every resolution down to 8 pixels, as nnU-Net has them."""
    outputs, targets = [logits], [labels.unsqueeze(1).to(torch.int16)]
    half = (slice(None), slice(None), *[slice(None, None, 2)] * (labels.ndim - 1))
    while min(outputs[-1].shape[2:]) >= 16:
        outputs.append(outputs[-1].detach()[half].contiguous().requires_grad_())
        targets.append(targets[-1][half].contiguous())
    return outputs, targets


def rows_of(name: str, calls: dict[str, tuple[Call, Sets]], floor: float) -> list[dict[str, Any]]:
    """Times and memory of every call; a failure is recorded and the next one measured."""
    times, rows = in_turns(name, calls), []
    for rival, (call, sets) in calls.items():
        if rival not in times:
            continue
        on_device = GPU and rival.startswith(("crac, fused", "cross"))
        graph = attempt(f"{name}: {rival}: CUDA graph", replayed, call, sets, 20) if on_device else None
        extra = attempt(f"{name}: {rival}: memory", extra_memory, call, sets)
        timing = {"ms": Timing.of(times[rival]), "graph_ms": graph, "extra_mib": extra or 0.0}
        rows.append({"case": name, "rival": rival, **timing, "floor_ms": floor})
    kernels.mode = "auto"
    return rows


FAILURES: list[str] = []


def attempt(what: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """What a function returns; ``None`` if it fails, with a line among the failures of the result file."""
    try:
        return function(*arguments)
    except Exception as error:
        FAILURES.append(f"{what}: {type(error).__name__}: {str(error)[:300]}")
        print(FAILURES[-1], flush=True)
        return None


def in_turns(name: str, calls: dict[str, tuple[Call, Sets]]) -> dict[str, list[float]]:
    """Times of every call, in rounds: where Python sets the pace, its own changes from second to second."""
    times: dict[str, list[float]] = {rival: [] for rival in calls}
    for _ in range(ROUNDS if GPU else 1):
        for rival in list(times):
            repeats = 4 if rival in ("unfold", "MONAI NACLLoss") else 20
            measured = attempt(f"{name}: {rival}", samples, *calls[rival], repeats)
            if measured is None:
                del times[rival]
            else:
                times[rival] += measured
    return times


def variants(classes: int) -> dict[str, Loss]:
    """The other things the kernel computes."""
    doubled = crac.CRaCLoss(classes).to(DEVICE)
    return {
        "crac, fused, ignore_index and class weights": crac.CRaCLoss(
            classes, ignore_index=255, class_weights=[1.0] * classes
        ).to(DEVICE),
        "crac, fused, three distance bands": crac.CRaCLoss(classes, radii=(1, 3)).to(DEVICE),
        "crac, fused, upstream gradient not 1": lambda logits, labels: 2 * doubled(logits, labels),
        "crac signed, fused": crac.CRaCLoss(classes, preset="signed").to(DEVICE),
        "nacl, fused": crac.build_loss("nacl", classes).to(DEVICE),
        "svls, fused": crac.build_loss("svls", classes).to(DEVICE),
    }


def sweep(count: int) -> dict[str, Any]:
    """Check random cases against the eager path in float64."""
    failed = []
    started = time.perf_counter()
    for seed in range(count):
        case = draw(seed, big=GPU)
        try:
            found = disagreements(case, DEVICE, seed)
        except Exception as error:
            found = [f"{type(error).__name__}: {str(error)[:300]}"]
        if found:
            failed.append({"seed": seed, "case": {key: str(value) for key, value in case.items()}, "found": found})
            print("FAIL", failed[-1], flush=True)
    print(
        f"agreement: {count - len(failed)} PASS, {len(failed)} FAIL ({time.perf_counter() - started:.0f} s)", flush=True
    )
    return {"cases": count, "failed": failed}


def profile(shape: tuple[int, ...]) -> dict[str, Any]:
    """What a call of the fused loss and one of cross-entropy keep busy: the CPU, and the device kernel by kernel."""
    losses: dict[str, Loss] = {
        "cross-entropy alone": F.cross_entropy,
        "crac, fused": crac.CRaCLoss(shape[1]).to(DEVICE),
    }
    batch = make_batch(shape, "cuda")
    issued: dict[str, list[float]] = {name: [] for name in losses}
    for _ in range(10 * ROUNDS):
        for name, loss in losses.items():
            torch.cuda.synchronize()
            started = time.perf_counter()
            both_passes(loss)(*batch)
            issued[name].append((time.perf_counter() - started) * 1e6)
    found: dict[str, Any] = {"shape": shape}
    for name, loss in losses.items():
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
            for _ in range(10):
                both_passes(loss)(*batch)
            torch.cuda.synchronize()
        kernels_us: dict[str, float] = {}
        for event in seen.key_averages():
            if event.self_device_time_total:
                kernel = event.key.split("<")[0]  # several kernels may share a template
                kernels_us[kernel] = kernels_us.get(kernel, 0) + event.self_device_time_total / 10
        found[name] = {"cpu_us": Timing.of(issued[name]), "device_us": sum(kernels_us.values()), "kernels": kernels_us}
        print(f"{shape} {name}: {found[name]}", flush=True)
    return found


def explore() -> None:
    """Try tile sizes, widths and warps; the fastest first."""
    from crac.kernels import launch

    for name, case in list(CASES.items())[1:6]:
        sets = input_sets(case)
        loss = crac.CRaCLoss(case["shape"][1]).to(DEVICE)
        found = []
        for tile, warps in ((256, 4), (256, 2), (512, 4), (512, 8), (1024, 8), (1024, 4), (2048, 8)):
            for width in (32, 64, 128, 256):
                launch.TILE, launch.WARPS, launch.WIDTHS = tile, warps, (width,)
                timing = timed(both_passes(loss), sets, 30)
                found.append((timing.median, f"{tile=} {warps=} {width=}"))
        launch.TILE, launch.WARPS, launch.WIDTHS = 512, 4, (128, 64, 32)
        for wide in (1, 1 << 62):
            launch.NARROW_FROM = wide
            found.append((timed(both_passes(loss), sets, 30).median, f"defaults, narrow from {wide}"))
        launch.NARROW_FROM = 1 << 21
        print(f"\n{name}")
        for median, what in sorted(found)[:8] + found[-2:]:
            print(f"  {median:7.3f} ms  {what}", flush=True)


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--explore", action="store_true", help="try tile sizes instead")
    parser.add_argument("--cases", type=int, default=20, help="random cases of the agreement check")
    parser.add_argument("--rehearse", action="store_true", help="tiny batches, also without a GPU, to try the script")
    parser.add_argument("--out", type=Path, help="result file; a rehearsal writes none by default")
    args = parser.parse_args()
    if not GPU and not args.rehearse:
        parser.error("needs a CUDA device, or --rehearse")
    if not GPU:
        os.environ["TRITON_INTERPRET"] = "1"
        kernels.mode = FUSED
    if args.explore:
        explore()
        return
    agreement = sweep(args.cases)
    bandwidth = copy_bandwidth()
    print(f"copy bandwidth {bandwidth / 1e12:.2f} TB/s", flush=True)
    rows, nnunet = [], NNUNET
    if importlib.util.find_spec("nnunetv2") is None:
        FAILURES.append("nnU-Net's loss was left out: nnunetv2 is not installed")
        print(FAILURES[-1], flush=True)
        nnunet = {}
    for measured, cases in ((measure, CASES), (measure_nnunet, nnunet)):
        for name, case in cases.items():
            if args.rehearse:
                case = case | {"shape": (1, min(case["shape"][1], 9), *[16] * (len(case["shape"]) - 2))}
            rows += attempt(name, measured, name, case, bandwidth, not args.rehearse) or []
            torch.cuda.empty_cache()
            print(f"timed {name}", flush=True)
    kernels.mode = "auto"
    shapes = ((16, 4, 192, 192), (64, 4, 512, 512), (2, 4, 128, 128, 128)) if GPU else ()
    result = environment() | {"copy_bytes_per_second": bandwidth, "agreement": agreement, "rows": rows}
    result |= {"profiles": [profile(shape) for shape in shapes], "failures": FAILURES}
    out = args.out or (None if args.rehearse else RESULTS / "loss_gpu.json")
    if out is not None:
        save(out, result)
    print()
    print(table(result))


if __name__ == "__main__":
    main()
