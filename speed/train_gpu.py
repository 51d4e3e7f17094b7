"""A 100-epoch CRaC training on a GPU, plain and fast, in one run: seconds, where a step's time goes, test scores.

crac prepare acdc ACDC acdc-store
python speed/train_gpu.py --data acdc-store --out speed/results/train_gpu.json
python speed/train_gpu.py --data acdc-store --epochs 12 --variants practical "practical, not augmented" --out FILE
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

import crac
from crac.data import Store
from crac.evaluation.run import evaluate_run
from crac.networks import BACKBONES
from crac.training import TrainConfig, train
from measure import RESULTS, environment, save

PLAIN: dict[str, Any] = {"precision": "fp32", "cache": "memory"}
FAST: dict[str, Any] = {
    "precision": "bf16",
    "channels_last": True,
    "compile": True,
    "cuda_graph": True,
    "cache": "device",
    "save_every": 25,
    "pictures": False,
}
SCORES = {"dsc": "dsc", "hd95": "hd95", "ece": "ece[label_foreground]", "tace": "tace[label_foreground]"}
PRACTICAL: dict[str, Any] = {**FAST, "recipe": "practical"}
VARIANTS: dict[str, dict[str, Any]] = {
    "fast": FAST,
    "plain fp32": PLAIN,
    "practical": PRACTICAL,
    "practical, not augmented": {**PRACTICAL, "augment": "none"},
}


def run(name: str, settings: dict[str, Any], data: Path, epochs: int, seed: int) -> dict[str, Any]:
    """Train and test once; the first epochs, where everything is compiled, are told apart from the others."""
    config = TrainConfig.make({"data": data, "recipe": "paper", "epochs": epochs, "seed": seed, **settings})
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        start = time.perf_counter()
        result = train(config, out)
        whole = time.perf_counter() - start
        seconds = [row["seconds"] for row in result.history]
        steady = statistics.median(seconds[2:])
        scores = evaluate_run(out, crac.load(out), data=data).per_volume()
    torch.compiler.reset()  # else the next run is given kernels for batches of any size, which are slower
    test = {name: scores[key]["mean"] for name, key in SCORES.items()}
    training = statistics.mean(seconds[2:]) * len(seconds)  # with the checkpoints that were written
    one_off = whole - training
    row = {
        "variant": name,
        "settings": settings,
        "seed": seed,
        "epochs": len(seconds),
        "finished": result.finished,
        "whole_s": whole,
        "training_s": training,
        "one_off_s": one_off,
        "epoch_s": steady,
        "epoch_s_range": [min(seconds[2:]), max(seconds[2:])],
        "test": test,
    }
    print(f"{name} seed {seed}: {training:.1f} s and {one_off:.1f} s one-off, {steady:.3f} s an epoch", flush=True)
    return row


def breakdown(classes: int) -> dict[str, float]:
    """Milliseconds of the parts of a step, of 16 images of 192x192 if not said otherwise."""
    device = torch.device("cuda")
    found = {}
    slices, small, fast = (16, 192), (64, 64), "bf16 channels-last compiled"
    for name, backbone, (batch, side), dtype, compiled in (
        ("fp32", "unet", slices, torch.float32, False),
        (fast, "unet", slices, torch.bfloat16, True),
        (f"nnunet, {fast}", "nnunet", slices, torch.bfloat16, True),
        (f"64 of 64x64, {fast}", "unet", small, torch.bfloat16, True),
        (f"64 of 64x64, nnunet, {fast}", "nnunet", small, torch.bfloat16, True),
    ):
        torch.backends.cudnn.allow_tf32, torch.backends.cudnn.benchmark = compiled, True
        torch.compiler.reset()  # else the next size is given kernels for any, which are slower
        network = BACKBONES[backbone](1, classes, 2, 32).to(device)
        images = torch.rand(batch, 1, side, side, device=device)
        if compiled:
            network, images = (
                network.to(memory_format=torch.channels_last),
                images.contiguous(memory_format=torch.channels_last),
            )
            network.compile()
        labels = torch.randint(classes, (batch, side, side), device=device)
        optimizer = torch.optim.Adam(network.parameters(), fused=True, capturable=True)
        loss = crac.CRaCLoss(classes).to(device)

        def forward(network: Any = network, images: Any = images, dtype: Any = dtype) -> torch.Tensor:
            with torch.autocast("cuda", torch.bfloat16, enabled=dtype == torch.bfloat16):
                logits: torch.Tensor = network(images)
                return logits

        def backward(forward: Any = forward) -> None:
            logits = forward()
            logits.backward(torch.ones_like(logits))

        def everything(forward: Any = forward, loss: Any = loss, labels: Any = labels) -> None:
            loss(forward(), labels).backward()

        found[f"{name}: network forward"] = graphed(forward)
        found[f"{name}: network forward and backward"] = graphed(backward)
        found[f"{name}: with the loss"] = graphed(everything)
        found[f"{name}: optimizer"] = graphed(optimizer.step)
    return found


def graphed(call: Any) -> float:
    """Median milliseconds of a call replayed as a CUDA graph: the device's own time."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return timed(graph.replay)


def timed(call: Any, repeats: int = 30) -> float:
    """Median milliseconds between device events."""
    for _ in range(3):
        call()
    times = []
    for _ in range(repeats):
        start, end = torch.cuda.Event(True), torch.cuda.Event(True)
        start.record()
        call()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="prepared ACDC store")
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--variants", nargs="+", default=["fast", "plain fp32"], choices=list(VARIANTS))
    parser.add_argument("--out", type=Path, default=RESULTS / "train_gpu.json")
    args = parser.parse_args()
    store = Store.open(args.data)
    parts = breakdown(store.num_classes) if torch.cuda.is_available() else {}
    for name, value in parts.items():
        print(f"{value:8.3f} ms  {name}", flush=True)
    rows = []
    for seed in args.seeds:
        for name in args.variants:
            rows.append(run(name, VARIANTS[name], args.data, args.epochs, seed))
            save(args.out, {"environment": environment(), "step_ms": parts, "runs": rows})
    columns = ("variant", "seed", "100 epochs", "one-off", "epoch", "DSC", "ECE", "TACE")
    print(f"\n| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    for row in rows:
        test = row["test"]
        print(
            f"| {row['variant']} | {row['seed']} | {row['training_s']:.1f} s | {row['one_off_s']:.1f} s | "
            f"{row['epoch_s']:.3f} s | {test['dsc']:.4f} | {test['ece']:.4f} | {test['tace']:.4f} |"
        )


if __name__ == "__main__":
    main()
