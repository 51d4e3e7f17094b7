"""Do one job: train or go on, test, write the results of its cells."""

from __future__ import annotations

import contextlib
import json
import time
import traceback
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from crac.benchmark.cell import Cell, Folder, Job
from crac.benchmark.measure import measure_volumes, paper_protocol, save_slices, volume_logits
from crac.benchmark.result import CellResult
from crac.benchmark.temperature import fit_temperature
from crac.data import Split, Store
from crac.errors import InputError
from crac.files import sha256, write_text
from crac.models.checkpoint import Checkpoint
from crac.models.model import Model
from crac.training import Result, resume, train
from crac.training.run import RunFolder

__all__ = ["Outcome", "do_job"]

NOT_FOR_OTHERS = ("command", "machine", "platform", "started")
"""What a run records about its start that is nobody else's business, or differs without meaning."""
CURVES = ("epoch", "train_loss", "validation_loss", "dice", "ece")


@dataclass(frozen=True)
class Outcome:
    """How a job ended.

    Args:
        job: Its name.
        seconds: It took.
        problem: One sentence, None if all is well.
        stopped: It was asked to stop and can go on later.
    """

    job: str
    seconds: float
    problem: str | None = None
    stopped: bool = False


def do_job(job: Job, folder: Folder) -> Outcome:
    """Train and test; whatever goes wrong is written down and returned, not raised."""
    start = time.perf_counter()
    problem, stopped = None, False
    folder.log(job).parent.mkdir(parents=True, exist_ok=True)
    try:
        with folder.log(job).open("a", encoding="utf-8") as log, contextlib.redirect_stdout(log):
            stopped = not _train_and_test(job, folder)
        folder.broken(job).unlink(missing_ok=True)
    except Exception as error:  # one broken run must not take the others along
        problem = (str(error).strip() or type(error).__name__).splitlines()[0]
        folder.broken(job).parent.mkdir(parents=True, exist_ok=True)
        write_text(folder.broken(job), traceback.format_exc())
    finally:
        if job.config.compile:
            torch.compiler.reset()  # else the compiler gives up on the ninth network a worker sees
        torch.cuda.empty_cache()  # does nothing where CUDA is not in use
    return Outcome(job.name, time.perf_counter() - start, problem, stopped)


def _train_and_test(job: Job, folder: Folder) -> bool:
    """Whether the training reached its end."""
    result = _train(job, folder.run(job))
    if not result.finished:
        return False
    store, split = Store.open(job.config.data), RunFolder(result.run).split()
    accelerator = job.config.accelerator
    model = Model.load(result.run, accelerator, batch_size=max(16, job.config.batch_size))
    for cell in job.cells:
        if not folder.result(cell).exists():
            _test(cell, job, folder, result, model, store, split)
    return True


def _train(job: Job, path: Path) -> Result:
    if not (path / "config.yaml").exists():
        return train(job.config, path)
    own = RunFolder(path).config().model_dump(mode="json")
    differing = [name for name, value in job.settings.items() if own[name] != value]
    if differing:
        name = differing[0]
        raise InputError(f"{path} was trained with {name} {own[name]!r}, not {job.settings[name]!r}: remove it")
    return resume(path)


def _test(cell: Cell, job: Job, folder: Folder, result: Result, model: Model, store: Store, split: Split) -> None:
    start = time.perf_counter()
    protocol = paper_protocol(store.class_names, model.card.dims)

    def validation() -> Iterator[tuple[Tensor, Tensor]]:
        for volume in volume_logits(model, store, split.validation):
            yield volume.logits.unsqueeze(0), volume.labels.unsqueeze(0)

    temperature = fit_temperature(validation) if cell.tempered else 1.0
    measured = measure_volumes(model, store, split.test, protocol, temperature)
    rows = measured.evaluation.rows
    columns = [name for name in rows[0] if name not in ("volume", "voxels")]
    pooled = measured.evaluation.pooled()
    save_slices(measured.slices, folder.maps(cell))
    CellResult(
        cell=cell,
        suite=job.suite,
        dataset=_describe(job, store, split),
        classes=list(store.class_names),
        settings=job.settings,
        environment=_environment(result.run),
        seconds={
            "training": sum(row["seconds"] for row in result.history),
            "evaluation": time.perf_counter() - start,
        },
        temperature=temperature,
        best_epoch=int(Checkpoint.read_info(RunFolder(result.run).best)["epoch"]),
        protocol=asdict(protocol),
        columns=columns,
        volumes={row["volume"]: [row[name] for name in columns] for row in rows},
        patients={row["volume"]: store.cases[row["volume"]].patient for row in rows},
        pooled={mask: _small(result.to_dict(store.class_names)) for mask, result in pooled.items()},
        logits=measured.logits,
        history=_curves(result.history),
    ).save(folder.result(cell))


def _describe(job: Job, store: Store, split: Split) -> dict[str, Any]:
    return {
        "label": job.dataset_label,
        "name": store.name,
        "recipe": store.manifest.recipe.name,
        "cases": {part: len(getattr(split, part)) for part in ("train", "validation", "test")},
        "patients": len({case.patient for case in store.cases.values()}),
        "manifest_sha256": sha256(store.path / "manifest.json"),
    }


def _small(pooled: dict[str, Any]) -> dict[str, Any]:
    """Without the bins that no figure shows: those of the classes within a region."""
    for region in pooled["by_region"].values():
        for one in region["by_class"].values():
            del one["bins"]
    return pooled


def _environment(run: Path) -> dict[str, Any]:
    last = json.loads((run / "environment.json").read_text(encoding="utf-8"))[-1]
    return {name: value for name, value in last.items() if name not in NOT_FOR_OTHERS}


def _curves(history: list[dict[str, float]]) -> dict[str, list[float]]:
    kept = [name for name in history[0] if name in CURVES or name.startswith(("ece_", "lambda_", "rho_"))]
    return {name: [row[name] for row in history] for name in kept}
