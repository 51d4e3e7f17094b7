"""The practical recipe beside nnU-Net v2, both trained for as many seconds on one GPU and on the same patients.

crac prepare nnunet Dataset004_Hippocampus hippocampus-store
python speed/equal_seconds.py --data hippocampus-store --epochs 80 --out results/nnunet/equal_hippocampus.json

nnU-Net gets the store's images, plans and prepares them by its own rules, and trains with its own trainer, in epochs of
50 iterations; what it calls validation here are the patients that the split leaves for the test. The seeds of one side
train side by side, then those of the other. The seconds of a training are its epochs times its median epoch, so that
what is done once, such as compiling, counts for neither; each side's validation after an epoch counts. Ours then trains
as many epochs as fit into nnU-Net's seconds, found by a first, short training of every seed, all at once.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import statistics
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from measure import environment, save
from train_gpu import FAST

TASK = "Dataset001_Equal"
ITERATIONS = 50
PROBE = 6
KEPT = ("dsc", "hd95", "nll[band]", "ece[band]")


def ours(folder: Path, store: Path, split: Path, seed: int, epochs: int, fast: dict[str, Any]) -> list[float]:
    """Train by the practical recipe; return the seconds of each epoch."""
    from crac.training import TrainConfig, train

    config = TrainConfig.make({"data": store, "split": split, "epochs": epochs, "seed": seed, **fast})
    return [row["seconds"] for row in train(config, folder / "run").history]


def nnunet(folder: Path, store: Path, seed: int, epochs: int, iterations: int) -> list[float]:
    """Train with nnU-Net's own trainer and let it predict the test patients; return the seconds of each epoch."""
    import torch
    from nnunetv2.run.run_training import get_trainer_from_args
    from nnunetv2.training.logging.nnunet_logger import LocalLogger

    LocalLogger.plot_progress_png = lambda *_: None  # ours draws none either
    torch.manual_seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    name = "2d" if json.loads((store / "manifest.json").read_text())["dims"] == 2 else "3d_fullres"
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    trainer = get_trainer_from_args(TASK, name, 0, "nnUNetTrainer", "nnUNetPlans", device=device)
    trainer.num_epochs = epochs
    trainer.num_iterations_per_epoch = iterations
    trainer.num_val_iterations_per_epoch = max(1, iterations // 5)  # as many to one as nnU-Net's own 250 and 50
    stamps: list[float] = []
    begin, end = trainer.on_epoch_start, trainer.on_epoch_end
    trainer.on_epoch_start = lambda: (stamps.append(time.perf_counter()), begin())  # type: ignore[method-assign]
    trainer.on_epoch_end = lambda: (end(), stamps.append(time.perf_counter()))  # type: ignore[method-assign]
    trainer.run_training()
    trainer.perform_actual_validation(save_probabilities=True)
    (folder / "validation").symlink_to(Path(trainer.output_folder) / "validation")
    return [after - before for before, after in zip(stamps[::2], stamps[1::2], strict=True)]


def prepare(work: Path, store: Path, split: Path) -> None:
    """Give nnU-Net the store's images as files of its own, one voxel a unit, planned and prepared by its rules."""
    import nibabel as nib
    from nnunetv2.experiment_planning.plan_and_preprocess_api import (
        extract_fingerprints,
        plan_experiments,
        preprocess,
    )

    from crac.data import Store

    data, parts = Store.open(store), json.loads(split.read_text())
    raw = work / "raw" / TASK
    for name in ("imagesTr", "labelsTr"):
        (raw / name).mkdir(parents=True, exist_ok=True)
    (work / "labels").mkdir(exist_ok=True)
    names = sorted({*parts["train"], *parts["test"]})
    for name in names:
        for channel, image in enumerate(np.asarray(data.image(name), np.float32)):
            nib.save(nib.Nifti1Image(image.T, np.eye(4)), raw / "imagesTr" / f"{name}_{channel:04d}.nii.gz")
        label = nib.Nifti1Image(np.asarray(data.label(name)).T, np.eye(4))
        nib.save(label, raw / "labelsTr" / f"{name}.nii.gz")
        if name in parts["test"]:
            nib.save(label, work / "labels" / f"{name}.nii.gz")
    manifest = data.manifest
    content = {
        "channel_names": {str(n): name for n, name in enumerate(manifest.channel_names)},
        "labels": {name: n for n, name in enumerate(manifest.class_names)},
        "numTraining": len(names),
        "file_ending": ".nii.gz",
        "overwrite_image_reader_writer": "NibabelIO",
    }
    (raw / "dataset.json").write_text(json.dumps(content))
    extract_fingerprints([1], num_processes=os.cpu_count() or 1)
    plan_experiments([1])
    configuration = "2d" if manifest.dims == 2 else "3d_fullres"
    preprocess([1], "nnUNetPlans", configurations=(configuration,), num_processes=(min(8, os.cpu_count() or 1),))
    folds = [{"train": sorted(parts["train"]), "val": sorted(parts["test"])}]
    (work / "preprocessed" / TASK / "splits_final.json").write_text(json.dumps(folds))


def side(name: str, epochs: int, options: argparse.Namespace) -> list[list[float]]:
    """Train all seeds of one side at once, each in a process of its own; return their epochs' seconds."""
    begun = []
    for seed in options.seeds:
        folder = options.work / f"{name}-{epochs}-{seed}"
        folder.mkdir(parents=True)
        command = [sys.executable, __file__, *sys.argv[1:], "--child", name, str(seed), str(epochs)]
        with (folder / "log").open("w") as log:
            begun.append((folder, subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)))
    for folder, process in begun:
        if process.wait():
            sys.exit(f"{folder / 'log'}:\n{(folder / 'log').read_text()[-2000:]}")
    return [json.loads((folder / "seconds.json").read_text()) for folder, _ in begun]


def measured(name: str, epochs: int, seed: int, options: argparse.Namespace) -> dict[str, list[float]]:
    """Return the test's volumes by name, each with the measures kept, on the store's grid."""
    folder = options.work / f"{name}-{epochs}-{seed}"
    what = [str(folder / "run"), "--split", "test"] if name == "crac" else []
    if name == "nnunet":
        what = ["--probabilities", str(folder / "validation"), "--labels", str(options.work / "labels")]
    protocol = ["--protocol", "paper", "--mask", "band", "--regions", "volume", "--out", str(folder / "evaluated")]
    subprocess.run([sys.executable, "-m", "crac", "evaluate", *what, *protocol], check=True, stdout=subprocess.DEVNULL)
    with (folder / "evaluated" / "per_volume.csv").open(newline="") as table:
        return {row["volume"]: [float(row[key]) for key in KEPT] for row in csv.DictReader(table)}


def main() -> None:
    """Train both sides and write what they reached."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="prepared store")
    parser.add_argument("--split", type=Path, help="split file (default: the store's split 0)")
    parser.add_argument("--epochs", type=int, default=80, help="of nnU-Net, 50 iterations each")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--settings", type=json.loads, default={}, help="JSON: settings of ours, over the recipe's")
    parser.add_argument("--work", type=Path, default=Path("equal-work"), help="folder for trainings")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rehearse", action="store_true", help="tiny trainings on the CPU; the numbers mean nothing")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    work = options.work.resolve()
    split = options.split or work / "split.json"
    os.environ.update(nnUNet_raw=f"{work}/raw", nnUNet_preprocessed=f"{work}/preprocessed")
    os.environ.setdefault("nnUNet_n_proc_DA", str(max(1, (os.cpu_count() or 1) // len(options.seeds))))
    plain = {"pictures": False, "width": 4}
    fast = {**(plain if options.rehearse else FAST), **options.settings}
    if options.child:
        name, seed, epochs = options.child[0], int(options.child[1]), int(options.child[2])
        if name == "prepare":
            prepare(work, options.data, split)
            return
        folder = work / f"{name}-{epochs}-{seed}"
        os.environ.update(nnUNet_results=str(folder / "results"))
        if name == "nnunet":
            seconds = nnunet(folder, options.data, seed, epochs, 2 if options.rehearse else ITERATIONS)
        else:
            seconds = ours(folder, options.data, split, seed, epochs, fast)
        (folder / "seconds.json").write_text(json.dumps(seconds))
        return
    work.mkdir(parents=True, exist_ok=True)
    if options.split is None:
        from crac.data import Store

        Store.open(options.data).split(0).save(split)
    subprocess.run([sys.executable, __file__, *sys.argv[1:], "--child", "prepare", "0", "0"], check=True)
    result: dict[str, Any] = {"format": 1, **environment(), "settings": fast, "columns": KEPT, "sides": {}}
    result["versions"]["nnunetv2"] = version("nnunetv2")
    for name in ("nnunet", "crac"):
        epochs = options.epochs
        if name == "crac":
            allowed = min(run["training_s"] for run in result["sides"]["nnunet"].values())
            epoch = statistics.median(second for seconds in side(name, PROBE, options) for second in seconds[2:])
            epochs = max(PROBE + 1, int(allowed / epoch))
        runs = side(name, epochs, options)
        result["sides"][name] = {
            str(seed): {
                "epochs": epochs,
                "epoch_s": statistics.median(seconds),
                "training_s": statistics.median(seconds) * epochs,
                "first_epoch_s": seconds[0],
                "volumes": measured(name, epochs, seed, options),
            }
            for seed, seconds in zip(options.seeds, runs, strict=True)
        }
        save(options.out, result)
        for seed, run in result["sides"][name].items():
            dice = statistics.fmean(dice for dice, *_ in run["volumes"].values())
            print(f"{name} {seed}: {epochs} epochs, {run['training_s']:.1f} s, Dice {dice:.4f}", flush=True)


if __name__ == "__main__":
    main()
