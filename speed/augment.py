"""How long it takes to augment a batch: ours on the batch's device, MONAI's and nnU-Net's image by image on the CPU.

    python speed/augment.py --out speed/results/augment_cpu.json

All draw from about the same changes (rotation, scale, noise, blur, brightness, contrast, low resolution, gamma) with
about nnU-Net's ranges and chances. nnU-Net's need ``batchgeneratorsv2``. Ours runs on a GPU where there is one; the
others are made for worker processes on the CPU, one core each.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from crac.data import Augmentation
from crac.data.augment import NUMBERS
from measure import RESULTS, Timing, environment

CASES = {"16 slices of 192x192": (16, 1, 192, 192), "2 volumes of 64x64x64": (2, 1, 64, 64, 64)}
Augment = Callable[[Tensor, Tensor], object]
Change = Callable[[Tensor, Tensor, int | None], tuple[Tensor, Tensor]]
"""Of an image ``(C, *S)``, its labels ``(*S)`` and a seed, if it is to be repeated: both as changed."""


def ours(strength: str, device: str) -> Augment:
    """Return ours, with numbers drawn anew for each batch."""
    augment = Augmentation.named(strength, mirror=True)

    def run(images: Tensor, labels: Tensor) -> object:
        numbers = torch.rand(len(images), NUMBERS).to(device)
        result = augment(images, labels, numbers)
        if device == "cuda":
            torch.cuda.synchronize()
        return result

    return run


def monai(size: tuple[int, ...], mirror: bool = True) -> Change:
    """Return MONAI's dictionary transforms."""
    from monai import transforms

    keys, dims = ["image", "label"], len(size)
    planes = dims * (dims - 1) // 2
    flips = [transforms.RandFlipd(keys, 0.5, axis) for axis in range(dims)] if mirror else []
    whole = transforms.Compose(
        [
            *flips,
            transforms.RandAffined(
                keys, prob=0.5, rotate_range=[math.radians(30)] * planes, shear_range=[0.1] * 2 * planes,
                scale_range=[0.25] * dims, mode=("bilinear", "nearest"), padding_mode="zeros",
            ),
            transforms.RandGaussianNoised("image", 0.25, std=0.05),
            transforms.RandGaussianSmoothd("image", (0.25, 1.0), (0.25, 1.0), (0.25, 1.0), prob=0.25),
            transforms.RandScaleIntensityd("image", 0.25, 0.25),
            transforms.RandAdjustContrastd("image", 0.25, (0.67, 1.5)),
            transforms.RandSimulateLowResolutiond(
                "image", 0.25, zoom_range=(0.5, 1.0), upsample_mode="bilinear" if dims == 2 else "trilinear"
            ),
        ]
    )  # fmt: skip

    def change(image: Tensor, label: Tensor, seed: int | None = None) -> tuple[Tensor, Tensor]:
        if seed is not None:
            whole.set_random_state(seed)
        changed = whole({"image": image, "label": label[None]})
        return changed["image"].as_tensor(), changed["label"].as_tensor()[0]

    return change


def nnunet(size: tuple[int, ...], mirror: bool = True) -> Change:
    """Return nnU-Net v2's own list of transforms."""
    from batchgeneratorsv2.transforms.intensity.brightness import MultiplicativeBrightnessTransform
    from batchgeneratorsv2.transforms.intensity.contrast import BGContrast, ContrastTransform
    from batchgeneratorsv2.transforms.intensity.gamma import GammaTransform
    from batchgeneratorsv2.transforms.intensity.gaussian_noise import GaussianNoiseTransform
    from batchgeneratorsv2.transforms.noise.gaussian_blur import GaussianBlurTransform
    from batchgeneratorsv2.transforms.spatial.low_resolution import SimulateLowResolutionTransform
    from batchgeneratorsv2.transforms.spatial.mirroring import MirrorTransform
    from batchgeneratorsv2.transforms.spatial.spatial import SpatialTransform
    from batchgeneratorsv2.transforms.utils.compose import ComposeTransforms
    from batchgeneratorsv2.transforms.utils.random import RandomTransform

    turn = math.radians(30)
    flips = [MirrorTransform(tuple(range(len(size))))] if mirror else []
    whole = ComposeTransforms(
        [
            SpatialTransform(
                size, patch_center_dist_from_border=0, random_crop=False, p_elastic_deform=0, p_rotation=0.2,
                rotation=(-turn, turn), p_scaling=0.2, scaling=(0.7, 1.4), p_synchronize_scaling_across_axes=1,
                bg_style_seg_sampling=False,
            ),
            RandomTransform(GaussianNoiseTransform((0, 0.1), p_per_channel=1, synchronize_channels=True), 0.1),
            RandomTransform(
                GaussianBlurTransform((0.5, 1.0), False, False, p_per_channel=0.5),
                0.2,
            ),
            RandomTransform(MultiplicativeBrightnessTransform(BGContrast((0.75, 1.25)), False, 1), 0.15),
            RandomTransform(ContrastTransform(BGContrast((0.75, 1.25)), True, False, 1), 0.15),
            RandomTransform(
                SimulateLowResolutionTransform(
                    (0.5, 1), synchronize_channels=False, synchronize_axes=True, ignore_axes=None, p_per_channel=0.5
                ),
                0.25,
            ),
            RandomTransform(
                GammaTransform(BGContrast((0.7, 1.5)), p_invert_image=1, synchronize_channels=False, p_per_channel=1,
                               p_retain_stats=1),
                0.1,
            ),
            RandomTransform(
                GammaTransform(BGContrast((0.7, 1.5)), p_invert_image=0, synchronize_channels=False, p_per_channel=1,
                               p_retain_stats=1),
                0.3,
            ),
            *flips,
        ]
    )  # fmt: skip

    def change(image: Tensor, label: Tensor, seed: int | None = None) -> tuple[Tensor, Tensor]:
        if seed is not None:
            torch.manual_seed(seed)
            np.random.seed(seed)  # noqa: NPY002
        changed = whole(image=image, segmentation=label[None])
        return changed["image"], changed["segmentation"][0]

    return change


def one_by_one(change: Change) -> Augment:
    """Return what changes a batch image by image."""
    return lambda images, labels: [change(*pair, None) for pair in zip(images, labels, strict=True)]


def measure(augment: Augment, images: Tensor, labels: Tensor, repeats: int) -> Timing:
    """Time single batches after three; on the CPU the processor's own time, which other programs do not add to."""
    clock = time.perf_counter if images.is_cuda else time.process_time
    times = []
    for _ in range(repeats + 3):
        start = clock()
        augment(images.clone(), labels.clone())
        times.append(1e3 * (clock() - start))
    return Timing.of(times[3:])


def main() -> None:
    """Measure everyone on every case and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=RESULTS / "augment_cpu.json")
    parser.add_argument("--repeats", type=int, default=30)
    args = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    rows = []
    for case, shape in CASES.items():
        generator = torch.Generator().manual_seed(0)
        images = torch.rand(shape, generator=generator)
        labels = torch.randint(0, 4, (shape[0], *shape[2:]), generator=generator)
        rivals: dict[str, Callable[[], Augment]] = {
            "ours, light": lambda: ours("light", device),
            "ours, strong": lambda: ours("strong", device),
            "MONAI": lambda shape=shape: one_by_one(monai(shape[2:])),  # type: ignore[misc]
            "nnU-Net v2": lambda shape=shape: one_by_one(nnunet(shape[2:])),  # type: ignore[misc]
        }
        for name, make in rivals.items():
            try:
                augment = make()
            except ImportError as error:
                print(f"{name} is left out: {error}")
                continue
            place = device if name.startswith("ours") else "cpu"
            timing = measure(augment, images.to(place), labels.to(place), args.repeats)
            rows.append({"case": case, "rival": name, "device": place, "ms": [round(value, 3) for value in timing]})
            print(rows[-1], flush=True)
        copied = measure(lambda images, labels: None, images.to(device), labels.to(device), args.repeats)
        rows.append({"case": case, "rival": "copying the batch", "device": device, "ms": [round(v, 3) for v in copied]})
    args.out.write_text(json.dumps({**environment(), "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
