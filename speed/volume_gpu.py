"""One training step on volumes on a GPU: the practical recipe's beside nnU-Net's own network and loss, in one run.

python speed/volume_gpu.py               # two patches of 128x128x128 voxels, one channel, four classes
python speed/volume_gpu.py --rehearse    # tiny patches on the CPU, to try the script; the times mean nothing

nnU-Net's side is what its trainer does in a step: PlainConvUNet of six levels, compiled, deep supervision, Dice and
cross-entropy, fp16 with loss scaling, clipped gradients, SGD. Ours takes the step of ``crac train``. The batch is
on the device before either begins.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from crac.data import Batch
from crac.losses import build_loss
from crac.networks import build_network
from crac.training.graph import GraphedStep
from crac.training.step import InnerStep
from measure import RESULTS, environment, make_batch, save
from rivals import nnunet_rivals
from train_gpu import timed

CLASSES = 4
FILTERS = [32, 64, 128, 256, 320, 320]
METHODS: dict[str, dict[str, Any]] = {"ce": {}, "crac": {"preset": "signed"}}


def ours(method: str, images: Tensor, labels: Tensor, cuda: bool) -> dict[str, Callable[[], Any]]:
    """Name -> one step of ``crac train`` on this batch, plain and, on a GPU, recorded."""
    from lightning.fabric import Fabric

    fabric = Fabric(accelerator="cuda" if cuda else "cpu", devices=1, precision="bf16-mixed" if cuda else "32-true")
    steps: dict[str, Callable[[], Any]] = {}
    kinds: dict[str, type[InnerStep]] = (
        {"step": InnerStep, "recorded step": GraphedStep} if cuda else {"step": InnerStep}
    )
    for name, kind in kinds.items():
        network: nn.Module = build_network("nnunet", 1, CLASSES, 3, 32, True)
        network = network.to(fabric.device, memory_format=torch.channels_last_3d)
        if cuda:
            network.compile()
        rate = torch.tensor(3e-3, device=fabric.device)
        optimizer = torch.optim.Adam(network.parameters(), lr=rate, fused=True, capturable=cuda)
        wrapped, prepared = fabric.setup(network, optimizer)
        loss = build_loss(method, CLASSES, dice_weight=1.0, **METHODS[method]).to(fabric.device)
        step = kind(fabric, wrapped, loss, prepared, clip_norm=12.0)
        batch = Batch(images.contiguous(memory_format=torch.channels_last_3d), labels, [])
        generator = torch.Generator(fabric.device)
        steps[f"crac, {method}, {name}"] = lambda step=step, batch=batch, generator=generator: step(batch, generator)  # type: ignore[misc]
    return steps


def nnunet(images: Tensor, labels: Tensor, cuda: bool) -> Callable[[], None]:
    """One step as nnU-Net's trainer takes it."""
    from dynamic_network_architectures.architectures.unet import PlainConvUNet

    levels = len(FILTERS)
    network = PlainConvUNet(
        1, levels, FILTERS, nn.Conv3d, 3, [1, *[2] * (levels - 1)], 2, CLASSES, 2, conv_bias=True,
        norm_op=nn.InstanceNorm3d, norm_op_kwargs={"eps": 1e-5, "affine": True}, nonlin=nn.LeakyReLU,
        nonlin_kwargs={"inplace": True}, deep_supervision=True,
    ).to(images.device)  # fmt: skip
    if cuda:
        network.compile()
    device = images.device.type
    loss = nnunet_rivals(CLASSES, levels - 1, device, cuda, "off")["nnU-Net's own loss"]
    optimizer = torch.optim.SGD(network.parameters(), 1e-2, momentum=0.99, nesterov=True, weight_decay=3e-5)
    scaler = torch.amp.GradScaler(device, enabled=cuda)
    full = labels.unsqueeze(1)
    targets = [full[:, :, :: 2**level, :: 2**level, :: 2**level] for level in range(levels - 1)]

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device, torch.float16, enabled=cuda):
            value = loss(network(images), targets)
        scaler.scale(value).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(network.parameters(), 12)
        scaler.step(optimizer)
        scaler.update()

    return step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rehearse", action="store_true", help="tiny patches on the CPU, to try the script")
    parser.add_argument("--out", type=Path, default=RESULTS / "volume_gpu.json")
    args = parser.parse_args()
    cuda, side = not args.rehearse, 64 if args.rehearse else 128
    torch.backends.cudnn.benchmark = True
    logits, labels = make_batch((2, CLASSES, side, side, side), "cuda" if cuda else "cpu")
    images = torch.rand_like(logits[:, :1]).detach()
    del logits
    makers: list[Callable[[], dict[str, Callable[[], Any]]]] = [lambda: {"nnU-Net": nnunet(images, labels, cuda)}]
    makers += [lambda method=method: ours(method, images, labels, cuda) for method in METHODS]  # type: ignore[misc]
    rows = []
    for make in makers:
        for name, step in make().items():
            if cuda:
                torch.cuda.reset_peak_memory_stats()
                for _ in range(12):  # compiles, chooses kernels, records
                    step()
                row = {"step": name, "ms": timed(step), "peak_gib": torch.cuda.max_memory_allocated() / 2**30}
                print(f"{row['ms']:8.2f} ms  {row['peak_gib']:6.2f} GiB  {name}", flush=True)
                rows.append(row)
                save(args.out, {"environment": environment(), "batch": [2, 1, side, side, side], "steps": rows})
            else:
                step()
                print(name)
            torch.compiler.reset()


if __name__ == "__main__":
    main()
