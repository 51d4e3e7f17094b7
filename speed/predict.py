"""How much memory and time predicting a large volume takes: in pieces, and as a whole beside it.

    python speed/predict.py --out speed/results/predict_cpu.json

A network of one layer answers about a phantom of 512 x 512 voxels a slice with 14 classes, so that figures are those
of everything around the network. ``--slices`` long, it goes through ``predict_images`` alone; ``--rival-slices`` long,
the same maps are also made by MONAI's sliding window over the whole volume, NumPy and nibabel.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import torch
from torch import nn

from crac.data import Intensity, Recipe
from crac.models.card import ModelCard
from crac.models.maps import Map
from crac.models.model import Model
from crac.models.predict import Image, predict_images
from measure import RESULTS, environment, save

SIDE, CLASSES, PATCH = 512, 14, (128, 128, 128)
RECIPE = Recipe(name="large", orientation="canonical", intensity=(Intensity(method="window", low=-160, high=240),))


def network() -> nn.Module:
    """One layer: what it costs is not what is measured."""
    torch.manual_seed(0)
    return nn.Conv3d(1, CLASSES, 1).eval().requires_grad_(False)


def phantom(path: Path, slices: int) -> None:
    """A CT-like volume in 16 bits: an ellipse with structures and noise."""
    generator = np.random.default_rng(0)
    across = np.linspace(-1, 1, SIDE)
    body = (across[:, None] ** 2 + 1.6 * across**2 < 0.8)[..., None]
    noise = generator.normal(0, 25, (SIDE, SIDE, 8))
    image = np.empty((SIDE, SIDE, slices), dtype=np.int16, order="F")
    for first in range(0, slices, 8):
        part = image[..., first : first + 8]
        waves = 150 * np.sin(9 * across[:, None, None]) * np.sin(7 * across[:, None] + first / 40)
        part[...] = np.where(body, waves + noise, -1000)[..., : part.shape[2]]
    nib.save(nib.Nifti1Image(image, np.diag([0.8, 0.8, 1.0, 1.0])), path)


def in_pieces(image: Path, out: Path, maps: list[str], dtype: Any) -> None:
    names = tuple(f"class{number}" for number in range(CLASSES))
    card = ModelCard(
        backbone="unet", width=1, dims=3, patch_size=PATCH, class_names=names, channel_names=("CT",), recipe=RECIPE
    )
    model = Model(network(), card, torch.device("cpu"), batch_size=1)
    predict_images(model, [Image("case", (image,))], out, outputs=[Map(name, dtype) for name in maps])


@torch.inference_mode()
def as_a_whole(image: Path, out: Path, maps: list[str], dtype: Any) -> None:
    from monai.inferers import SlidingWindowInferer

    loaded = nib.load(image)
    array = np.clip((loaded.get_fdata(dtype=np.float32) + 160) / 400, 0, 1).transpose(2, 1, 0)
    window = SlidingWindowInferer(PATCH, sw_batch_size=1, overlap=0.5, mode="gaussian")
    logits = window(torch.from_numpy(np.ascontiguousarray(array))[None, None], network())[0]
    probabilities = logits.softmax(0).numpy().transpose(0, 3, 2, 1)
    entropy = -(probabilities * np.log(np.maximum(probabilities, 1e-30))).sum(0) / np.log(CLASSES)
    made = {
        "label": probabilities.argmax(0).astype(np.uint8),
        "confidence": probabilities.max(0),
        "entropy": entropy.astype(np.float32),
        "probabilities": np.moveaxis(probabilities, 0, -1),
    }
    out.mkdir()
    for name in maps:
        nib.save(nib.Nifti1Image(made[name], loaded.affine), out / f"case_{name}.nii.gz")


WAYS = {"in_pieces": in_pieces, "as_a_whole": as_a_whole}


def measured(way: str, folder: Path, slices: int, maps: list[str], dtype: str) -> dict[str, Any]:
    """Peak memory and time of a process of its own."""
    image = folder / f"{slices}.nii.gz"
    if not image.exists():
        phantom(image, slices)
    out = folder / f"{way}-{slices}-{dtype}-{len(maps)}"
    command = [sys.executable, __file__, "--way", way, "--image", str(image), "--to", str(out), "--dtype", dtype]
    done = subprocess.run([*command, "--maps", *maps], check=True, capture_output=True, text=True)
    sizes = {path.name: round(path.stat().st_size / 2**20, 1) for path in sorted(out.glob("*.nii.gz"))}
    about = {"way": way, "shape": [SIDE, SIDE, slices], "maps": maps, "dtype": dtype, **json.loads(done.stdout)}
    result = {**about, "files_mib": sizes}
    print(result, flush=True)
    for path in out.iterdir():
        path.unlink()
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slices", type=int, default=1000)
    parser.add_argument("--rival-slices", type=int, default=64)
    parser.add_argument("--large-dtype", default="uint8", choices=("float32", "float16", "uint8"))
    parser.add_argument("--out", type=Path, default=RESULTS / "predict_cpu.json")
    for name in ("way", "image", "to", "dtype"):
        parser.add_argument(f"--{name}", help=argparse.SUPPRESS)
    parser.add_argument("--maps", nargs="+", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.way:
        start = time.perf_counter()
        WAYS[args.way](Path(args.image), Path(args.to), args.maps, args.dtype)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        print(json.dumps({"peak_gib": round(peak, 2), "seconds": round(time.perf_counter() - start)}))
        return
    every = ["label", "confidence", "entropy", "probabilities"]
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        place = Path(folder)
        rows = [measured(way, place, args.rival_slices, every, "float32") for way in ("as_a_whole", "in_pieces")]
        rows += [measured("in_pieces", place, args.rival_slices, every, dtype) for dtype in ("float16", "uint8")]
        rows.append(measured("in_pieces", place, args.slices, every, args.large_dtype))
    save(args.out, {**environment(), "patch": list(PATCH), "classes": CLASSES, "rows": rows})


if __name__ == "__main__":
    main()
