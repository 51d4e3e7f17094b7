"""What augmentation brings in Dice: ours, MONAI's and nnU-Net's, all else the same.

    crac prepare nnunet Dataset004_Hippocampus hippocampus-store
    python speed/augment_dice.py --data hippocampus-store --epochs 50 --jobs 5

The practical recipe trains the same network on the same patches in the same order, for as many steps and with the same
seeds; only the changes of the images differ. MONAI's and nnU-Net's are those that ``speed/augment.py`` times, made by
processes on the CPU a few batches ahead; no step is recorded in a CUDA graph. Patches are changed as they were cut.
nnU-Net's ranges are meant for images of mean 0 and standard deviation 1, which it therefore gets; ours and MONAI's get
0 to 1. Voxels should be about as long as wide and deep. Every run is measured at its best epoch on the test patients.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch

import augment
from crac.data import Batch, Batches
from measure import RESULTS, environment, save

ARMS = {"none": "none", "light": "light", "strong": "strong", "monai": "none", "nnunet": "none"}
"""What each arm sets ``augment`` to; that of the last two is put in its place."""

RIVALS = {"monai": augment.monai, "nnunet": augment.nnunet}
KEPT = ("dsc", "hd95", "nll[band]", "ece[band]")
AHEAD = 4
Array = np.ndarray[Any, Any]


class Changed(Batches):
    """Batches that processes on the CPU change image by image, a few batches ahead of the training.

    Args:
        rival: Whose transforms.
        mirror: Whether they mirror.
        workers: Processes.
        batches: What :class:`~crac.data.Batches` is given.
        settings: Likewise.
    """

    def __init__(self, rival: str, mirror: bool, workers: int, *batches: Any, **settings: Any) -> None:
        self.place = settings.pop("device")
        super().__init__(*batches, device="cpu", **settings)
        moments = self.store.moments(self.cases) if rival == "nnunet" else None
        self.pool = ProcessPoolExecutor(
            workers, multiprocessing.get_context("spawn"), prepare, (rival, self.size, mirror, moments)
        )

    def __iter__(self) -> Iterator[Batch]:
        begun: deque[tuple[list[str], list[Future[tuple[Array, Array]]]]] = deque()
        for number, batch in enumerate(super().__iter__()):
            seeds = np.random.SeedSequence((self.seed, self.epoch, number)).generate_state(len(batch.names))
            pairs = zip(batch.images.numpy(), batch.labels.to(torch.uint8).numpy(), seeds.tolist(), strict=True)
            begun.append((batch.names, [self.pool.submit(change, *pair) for pair in pairs]))
            if len(begun) > AHEAD:
                yield self.finish(*begun.popleft())
        while begun:
            yield self.finish(*begun.popleft())

    def finish(self, names: list[str], begun: Sequence[Future[tuple[Array, Array]]]) -> Batch:
        """Wait for a batch."""
        images, labels = (np.stack(one) for one in zip(*(future.result() for future in begun), strict=True))
        return Batch(torch.from_numpy(images).to(self.place), torch.from_numpy(labels).to(self.place).long(), names)


def prepare(rival: str, size: tuple[int, ...], mirror: bool, moments: tuple[Array, Array] | None) -> None:
    """Make a process ready to :func:`change` images."""
    global transform, scale
    torch.set_num_threads(1)
    transform = RIVALS[rival](size, mirror)
    mean, deviation = moments or (np.zeros(1), np.ones(1))
    scale = [torch.from_numpy(one).float().view(-1, *[1] * len(size)) for one in (mean, deviation)]


def change(image: Array, label: Array, seed: int) -> tuple[Array, Array]:
    """Change an image ``(C, *S)`` and its labels; the same seed does the same."""
    mean, deviation = scale
    changed, labels = transform((torch.from_numpy(image) - mean) / deviation, torch.from_numpy(label).long(), seed)
    return (changed * deviation + mean).numpy(), labels.to(torch.uint8).numpy()


def trained(arm: str, seed: int, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Train and measure one run."""
    import crac
    from crac.evaluation.run import evaluate_run
    from crac.training import TrainConfig, task, train

    settings = {**options.settings, "augment": ARMS[arm], "cuda_graph": False}
    place = {"data": options.data, "split": options.split, "epochs": options.epochs, "seed": seed}
    make = partial(Changed, arm, settings.get("mirror", False), options.workers)
    made: list[Changed] = []

    def batches(*given: Any, **named: Any) -> Batches:
        if arm not in RIVALS or not named.get("shuffle", True):
            return Batches(*given, **named)
        made.append(make(*given, **{**named, "cache": "memory"}))
        return made[-1]

    with mock.patch.object(task, "Batches", batches):
        history = train(TrainConfig.make({**settings, **place}), folder / "run").history
    for one in made:
        one.pool.shutdown()
    evaluation = evaluate_run(folder / "run", crac.load(folder / "run"), masks=("band",), regions="volume")
    columns = [evaluation.by_patient(name) for name in KEPT]
    seconds = [row["seconds"] for row in history]
    return {
        "epoch_s": statistics.median(seconds),
        "first_epoch_s": seconds[0],
        "best_epoch": max(history, key=lambda row: row["dice"])["epoch"],
        "patients": {patient: [column[patient] for column in columns] for patient in columns[0]},
    }


def run(arm: str, seed: int, options: argparse.Namespace) -> dict[str, Any]:
    """Train and measure in a process of its own."""
    folder = options.work / f"{arm}-{seed}"
    folder.mkdir(parents=True)
    command = [sys.executable, __file__, *sys.argv[1:], "--child", arm, str(seed)]
    with (folder / "log").open("w") as log:
        if subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, check=False).returncode:
            raise RuntimeError(f"{folder / 'log'}:\n{(folder / 'log').read_text()[-2000:]}")
    found: dict[str, Any] = json.loads((folder / "result.json").read_text())
    return found


def main() -> None:
    """Train every arm with every seed and write what they reached."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="prepared store")
    parser.add_argument("--split", type=Path, help="split file (default: the store's split 0)")
    parser.add_argument("--epochs", type=int, default=50)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS))
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    parser.add_argument("--workers", type=int, help="processes of MONAI's and nnU-Net's runs, each")
    parser.add_argument("--settings", type=json.loads, default={}, help="JSON: settings over the recipe's")
    parser.add_argument("--work", type=Path, default=Path("augment-work"), help="folder for trainings")
    parser.add_argument("--out", type=Path, default=RESULTS / "augment_dice.json")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.settings = {"cache": "device", "save_every": 25, "pictures": False, **options.settings}
    if options.workers is None:
        options.workers = max(1, ((os.cpu_count() or 1) - options.jobs) // 2)
    if options.child:
        arm, seed = options.child[0], int(options.child[1])
        folder = options.work / f"{arm}-{seed}"
        (folder / "result.json").write_text(json.dumps(trained(arm, seed, folder, options)))
        return
    result: dict[str, Any] = {"format": 1, **environment("batchgeneratorsv2"), "cores": os.cpu_count()}
    result |= {name: getattr(options, name) for name in ("settings", "epochs", "jobs", "workers")}
    result |= {"columns": KEPT, "arms": {}}
    failed = []
    with ThreadPoolExecutor(options.jobs) as pool:  # all arms of a seed first
        begun = {pool.submit(run, arm, seed, options): (arm, seed) for seed in options.seeds for arm in options.arms}
        for future in as_completed(begun):
            arm, seed = begun[future]
            if error := future.exception():
                failed.append(f"{arm} {seed}: {error}")
                continue
            result["arms"].setdefault(arm, {})[str(seed)] = found = future.result()
            save(options.out, result)
            dice = statistics.fmean(values[0] for values in found["patients"].values())
            print(f"{arm} {seed}: {found['epoch_s']:.2f} s an epoch, Dice {dice:.4f}", flush=True)
    if failed:
        sys.exit("\n\n".join(failed))
    result["arms"] = {
        arm: {str(seed): result["arms"][arm][str(seed)] for seed in options.seeds} for arm in options.arms
    }
    save(options.out, result)


if __name__ == "__main__":
    main()
