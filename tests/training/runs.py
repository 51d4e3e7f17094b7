"""Runs in processes of their own, changed runs and what a run's network says, for the tests of this folder."""

import multiprocessing
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch
import yaml

from crac.data import Batches, Store
from crac.models.card import ModelCard
from crac.models.checkpoint import Checkpoint, load_tensors
from crac.training import TrainConfig, resume, train

# A server that has imported everything forks each process in milliseconds; none of them shares memory with another.
FORK = multiprocessing.get_context("forkserver")
PRELOADED = ["crac.training", "lightning.fabric", "torch.utils.tensorboard", "matplotlib.pyplot", "rich.progress"]
FORK.set_forkserver_preload(PRELOADED)


def start(config: TrainConfig, run: Path) -> BaseProcess:
    """Begin the run, or go on with it, in a process of its own."""
    exists = (run / "config.yaml").exists()
    process = FORK.Process(target=resume if exists else train, args=(run,) if exists else (config, run))
    process.start()
    return process


def edit(run: Path, **settings: Any) -> None:
    path = run / "config.yaml"
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | settings))


def logits_and_labels(store: Store, cases: list[str], run: Path, name: str) -> tuple[torch.Tensor, torch.Tensor]:
    checkpoint = Checkpoint.load(run / name)
    network = ModelCard.read(checkpoint.info, run).build()
    load_tensors(network, checkpoint.part("network"), run)
    (batch,) = Batches(store, cases, batch_size=1000, shuffle=False)
    with torch.no_grad():
        return network.eval()(batch.images), batch.labels
