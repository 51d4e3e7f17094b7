"""Speed and memory of the loss on a GPU, forward and backward, beside its rivals and the memory floor.

python speed/loss_gpu.py               # checks agreement, then times; about two minutes
python speed/loss_gpu.py --explore     # looks for better tile sizes
"""

from __future__ import annotations

import argparse
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
from rivals import Loss, rivals, with_mode

Sets = list[tuple[Tensor, Tensor]]
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


def copy_bandwidth() -> float:
    """Bytes per second of a large copy, read and written."""
    source = torch.randn(1 << 29, device="cuda")
    target = torch.empty_like(source)
    times = timed(lambda _x, _y: target.copy_(source), [(source, source)], 20)
    return 2 * source.numel() * source.element_size() / (times.median / 1e3)


def samples(call: Callable[[Tensor, Tensor], Any], sets: Sets, repeats: int) -> list[float]:
    """Milliseconds of calls one by one, on inputs that take turns so that the cache holds none of them."""
    for number in range(5):
        call(*sets[number % len(sets)])
    events = [(torch.cuda.Event(True), torch.cuda.Event(True)) for _ in range(repeats)]
    torch.cuda.synchronize()
    for number, (start, end) in enumerate(events):
        start.record()
        call(*sets[number % len(sets)])
        end.record()
    torch.cuda.synchronize()
    return [start.elapsed_time(end) for start, end in events]


def timed(call: Callable[[Tensor, Tensor], Any], sets: Sets, repeats: int) -> Timing:
    """Time calls one by one."""
    return Timing.of(samples(call, sets, repeats))


def replayed(call: Callable[[Tensor, Tensor], Any], sets: Sets, repeats: int) -> Timing:
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


def extra_memory(call: Callable[[Tensor, Tensor], Any], sets: Sets) -> float:
    """Peak MiB beyond inputs and gradient."""
    call(*sets[0])
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    returned = call(*sets[0]) or ()
    torch.cuda.synchronize()
    gradient = sum(one.numel() * one.element_size() for one in returned)
    return (torch.cuda.max_memory_allocated() - before - gradient) / 2**20


def both_passes(loss: Loss) -> Callable[[Tensor, Tensor], Any]:
    return lambda logits, labels: torch.autograd.grad(loss(logits, labels), logits)


def input_sets(case: dict[str, Any]) -> Sets:
    logits, labels = make_batch(
        case["shape"], "cuda", case.get("dtype", torch.float32), case.get("channels_last", False)
    )
    count = max(2, min(16, (1 << 28) // least_bytes(logits, labels)))
    return [(logits, labels)] + [
        make_batch(case["shape"], "cuda", logits.dtype, case.get("channels_last", False), seed)
        for seed in range(1, count)
    ]


def measure(name: str, case: dict[str, Any], bandwidth: float) -> list[dict[str, Any]]:
    """Every rival on one shape."""
    sets = input_sets(case)
    plain = "dtype" not in case and case["shape"][1] < 64
    torch.compiler.reset()
    losses = rivals(case["shape"][1], "cuda", compiled=plain)
    if not plain:
        losses = {key: losses[key] for key in ("crac, eager", "cross-entropy alone", "crac, fused")}
    calls = {rival: (both_passes(loss), sets) for rival, loss in losses.items()}
    narrow = [(logits, labels.to(torch.uint8)) for logits, labels in sets]
    calls["crac, fused, uint8 labels"] = both_passes(losses["crac, fused"]), narrow
    if name == "64x4x512x512 fp32":
        calls |= {
            rival: (both_passes(with_mode("auto", loss)), sets) for rival, loss in variants(case["shape"][1]).items()
        }
        observing = crac.CRaCLoss(case["shape"][1]).cuda()
        observe = with_mode("auto", lambda logits, labels: observing.observe(logits.detach(), labels))
        calls["crac, fused observe"] = observe, sets
    times = in_turns(name, calls)
    rows = []
    for rival, (call, on) in calls.items():
        if rival in times:
            graph = replayed(call, on, 20) if rival.startswith(("crac, fused", "cross")) else None
            floor = least_bytes(*on[0]) / bandwidth * 1e3
            timing = {"ms": Timing.of(times[rival]), "graph_ms": graph, "extra_mib": extra_memory(call, on)}
            rows.append({"case": name, "rival": rival, **timing, "floor_ms": floor})
    kernels.mode = "auto"
    return rows


def in_turns(name: str, calls: dict[str, tuple[Callable[[Tensor, Tensor], Any], Sets]]) -> dict[str, list[float]]:
    """Times of every call, in rounds: where Python sets the pace, its own changes from second to second."""
    times: dict[str, list[float]] = {rival: [] for rival in calls}
    for _ in range(ROUNDS):
        for rival in list(times):
            try:
                times[rival] += samples(*calls[rival], 4 if rival in ("unfold", "MONAI NACLLoss") else 20)
            except Exception as error:
                print(f"{name}: {rival}: {type(error).__name__}: {str(error)[:300]}", flush=True)
                del times[rival]
    return times


def variants(classes: int) -> dict[str, Loss]:
    """The other things the kernel computes."""
    doubled = crac.CRaCLoss(classes).cuda()
    return {
        "crac, fused, ignore_index and class weights": crac.CRaCLoss(
            classes, ignore_index=255, class_weights=[1.0] * classes
        ).cuda(),
        "crac, fused, three distance bands": crac.CRaCLoss(classes, radii=(1, 3)).cuda(),
        "crac, fused, upstream gradient not 1": lambda logits, labels: 2 * doubled(logits, labels),
        "nacl, fused": crac.build_loss("nacl", classes).cuda(),
        "svls, fused": crac.build_loss("svls", classes).cuda(),
    }


def sweep(count: int) -> dict[str, Any]:
    """Random cases against the eager path in float64."""
    failed = []
    started = time.perf_counter()
    for seed in range(count):
        case = draw(seed)
        try:
            found = disagreements(case, "cuda", seed)
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
    losses: dict[str, Loss] = {"cross-entropy alone": F.cross_entropy, "crac, fused": crac.CRaCLoss(shape[1]).cuda()}
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
        loss = crac.CRaCLoss(case["shape"][1]).cuda()
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
    parser.add_argument("--out", type=Path, default=RESULTS / "loss_gpu.json")
    args = parser.parse_args()
    if not torch.cuda.is_available():
        parser.error("needs a CUDA device")
    if args.explore:
        explore()
        return
    agreement = sweep(args.cases)
    bandwidth = copy_bandwidth()
    print(f"copy bandwidth {bandwidth / 1e12:.2f} TB/s", flush=True)
    rows = []
    for name, case in CASES.items():
        rows += measure(name, case, bandwidth)
        torch.cuda.empty_cache()
        print(f"timed {name}", flush=True)
    kernels.mode = "auto"
    profiles = [profile(shape) for shape in ((16, 4, 192, 192), (64, 4, 512, 512), (2, 4, 128, 128, 128))]
    result = environment() | {"copy_bytes_per_second": bandwidth, "agreement": agreement, "rows": rows}
    result["profiles"] = profiles
    save(args.out, result)
    print()
    print(table(result))


if __name__ == "__main__":
    main()
