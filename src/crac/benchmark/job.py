"""One job of a benchmark: train or go on, test, write the results of its cells."""

import contextlib
import time
import traceback
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from crac.benchmark.results import CellResult
from crac.benchmark.suite import Cell, Job
from crac.calibration import build_calibrator
from crac.data import Split, Store
from crac.errors import InputError
from crac.evaluation import Case, Protocol, evaluate
from crac.evaluation.run import RunCases
from crac.files import read_json, replacing, sha256, write_text
from crac.models.checkpoint import Checkpoint
from crac.models.model import Model
from crac.training import Result, resume, train
from crac.training.run import RunFolder

NOT_FOR_OTHERS = ("command", "machine", "platform", "started")
"""What a run records about its start that is nobody else's business, or differs without meaning."""

CURVES = ("epoch", "train_loss", "validation_loss", "dice", "ece")
LOGIT_RANGE, LOGIT_BINS = (-40.0, 40.0), 160


@dataclass(frozen=True)
class Folder:
    """Where a benchmark keeps its files.

    OUT/runs/JOB/             folder of the training
    OUT/runs/JOB.log          what it printed
    OUT/results/CELL.json     everything that tables and figures are made of
    OUT/maps/CELL.npz         slices of the best and of the worst volume, for the picture of maps
    OUT/broken/JOB.txt        why a training failed
    OUT/data/NAME             stores of artificial data

    Args:
        path: The folder.
    """

    path: Path

    def run(self, job: Job) -> Path:
        """Return the folder of a training."""
        return self.path / "runs" / job.name

    def result(self, cell: Cell) -> Path:
        """Return the file with the numbers of a cell."""
        return self.path / "results" / f"{cell.name}.json"

    def data(self, name: str) -> Path:
        """Return the store of artificial data."""
        return self.path / "data" / name

    def finished(self, job: Job) -> bool:
        """Return whether all results of a job are there."""
        return all(self.result(cell).exists() for cell in job.cells)


@dataclass(frozen=True)
class Outcome:
    """How a job ended.

    Args:
        job: Its name.
        seconds: How long it took.
        problem: What went wrong, in one sentence; None if nothing did.
        stopped: Whether it was asked to stop and can go on later.
    """

    job: str
    seconds: float
    problem: str | None = None
    stopped: bool = False


def do_job(job: Job, folder: Folder) -> Outcome:
    """Train and test; whatever goes wrong is written down and returned, not raised."""
    start = time.perf_counter()
    problem, stopped = None, False
    log, broken = folder.path / "runs" / f"{job.name}.log", folder.path / "broken" / f"{job.name}.txt"
    log.parent.mkdir(parents=True, exist_ok=True)
    try:
        with log.open("a", encoding="utf-8") as stream, contextlib.redirect_stdout(stream):
            stopped = not _train_and_test(job, folder)
        broken.unlink(missing_ok=True)
    except Exception as error:  # one broken run must not take the others along
        problem = (str(error).strip() or type(error).__name__).splitlines()[0]
        broken.parent.mkdir(parents=True, exist_ok=True)
        write_text(broken, traceback.format_exc())
    finally:
        if job.config.compile:
            torch.compiler.reset()  # else the compiler gives up on the ninth network a worker sees
        torch.cuda.empty_cache()  # does nothing where CUDA is not in use
    return Outcome(job.name, time.perf_counter() - start, problem, stopped)


def _train_and_test(job: Job, folder: Folder) -> bool:
    """Return whether the training reached its end."""
    result = _train(job, folder.run(job))
    if not result.finished:
        return False
    store, split = Store.open(job.config.data), RunFolder(result.run).split()
    model = Model.load(result.run, job.config.accelerator, batch_size=max(16, job.config.batch_size))
    for cell in job.cells:
        if not folder.result(cell).exists():
            _test(cell, job, folder, result, model, store, split)
    return True


def _train(job: Job, path: Path) -> Result:
    if not (path / "config.yaml").exists():
        return train(job.config, path)
    own = RunFolder(path).config().model_dump(mode="json")
    for name, value in job.settings.items():
        if own[name] != value:
            raise InputError(f"{path} was trained with {name} {own[name]!r}, not {value!r}: remove it")
    return resume(path)


def _test(cell: Cell, job: Job, folder: Folder, result: Result, model: Model, store: Store, split: Split) -> None:
    start = time.perf_counter()

    def validation() -> Iterator[tuple[Tensor, Tensor]]:
        cases = RunCases(model, store, split.validation)
        for case in map(cases.load, cases.names):
            yield case.scores.unsqueeze(0), case.labels.unsqueeze(0)

    temperature = 1.0
    if cell.tempered:
        calibrator = build_calibrator("temperature", store.num_classes).to(model.device)
        temperature = float(calibrator.fit(validation, mask="all", ignore_index=store.ignore_index).temperature)
    cases = RunCases(model, store, split.test, transform=lambda logits: logits / temperature)
    protocol = Protocol.named("paper", store.class_names, regions="slice" if model.card.dims == 2 else "volume")
    protocol = replace(protocol, ignore_index=store.ignore_index)
    views = Views(store)
    evaluation = evaluate(cases, protocol, seen=views)
    maps = folder.path / "maps" / f"{cell.name}.npz"
    maps.parent.mkdir(parents=True, exist_ok=True)
    with replacing(maps) as partial:
        np.savez_compressed(partial, allow_pickle=False, **views.slices)
    rows = evaluation.rows
    columns = [name for name in rows[0] if name not in ("volume", "patient", "voxels")]
    environment = read_json(result.run / "environment.json")[-1]
    curves = [name for name in result.history[0] if name in CURVES or name.startswith(("ece_", "lambda_", "rho_"))]
    training = sum(row["seconds"] for row in result.history)
    CellResult(
        cell=cell,
        suite=job.suite,
        dataset={
            "label": job.dataset_label,
            "name": store.name,
            "recipe": store.manifest.recipe.name,
            "cases": {part: len(getattr(split, part)) for part in ("train", "validation", "test")},
            "patients": len({case.patient for case in store.cases.values()}),
            "manifest_sha256": sha256(store.path / "manifest.json"),
        },
        classes=list(store.class_names),
        settings=job.settings,
        environment={name: value for name, value in environment.items() if name not in NOT_FOR_OTHERS},
        seconds={"training": training, "evaluation": time.perf_counter() - start},
        temperature=temperature,
        best_epoch=int(Checkpoint.read_info(RunFolder(result.run).best)["epoch"]),
        protocol=asdict(protocol),
        columns=columns,
        volumes={row["volume"]: [row[name] for name in columns] for row in rows},
        patients={row["volume"]: row["patient"] for row in rows},
        pooled={mask: _small(one.to_dict(store.class_names)) for mask, one in evaluation.pooled().items()},
        logits={"range": LOGIT_RANGE, "winning": views.winning.tolist(), "other": views.other.tolist()},
        history={name: [row[name] for row in result.history] for name in curves},
    ).save(folder.result(cell))


def _small(pooled: dict[str, Any]) -> dict[str, Any]:
    """Leave out the bins that no figure shows: those of the classes within a region."""
    for region in pooled["by_region"].values():
        for one in region["by_class"].values():
            del one["bins"]
    return pooled


class Views:
    """What the figures need of the test volumes: histograms of their logits, a slice of the best and of the worst.

    Args:
        store: Where the images are.

    Attributes:
        winning: Histogram of the winning class's logits, over the voxels labelled foreground.
        other: The same of the other classes' logits.
        slices: ``best_`` and ``worst_`` name, dsc, image, label, prediction and confidence.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self.winning, self.other = np.zeros((2, LOGIT_BINS), dtype=np.int64)
        self.slices: dict[str, NDArray[Any]] = {}

    def __call__(self, case: Case, row: dict[str, Any]) -> None:
        """Take in one volume."""
        shown = (case.labels > 0) & (case.labels != self.store.ignore_index)
        ordered = case.scores[:, shown].sort(0, descending=True).values
        self.winning += _histogram(ordered[:1])
        self.other += _histogram(ordered[1:])
        score = float(row["dsc"])
        best, worst = (self.slices.get(f"{which}_dsc", default) for which, default in (("best", -1), ("worst", 2)))
        for which, better in (("best", score > best), ("worst", score < worst)):
            if better:  # never for NaN, the score of a volume without foreground
                self.slices |= {f"{which}_{name}": array for name, array in self._slice(case, score).items()}

    def _slice(self, case: Case, score: float) -> dict[str, NDArray[Any]]:
        """Return the slice with most foreground, in bytes."""
        index = int((case.labels > 0).sum((1, 2)).argmax())
        confidence, prediction = case.scores[:, index].softmax(0).max(0)
        image = np.array(self.store.image(case.name)[0, index], dtype=np.float32)
        return {
            "name": np.array(case.name),
            "dsc": np.array(score),
            "image": (255 * image.clip(0, 1)).astype(np.uint8),
            "label": case.labels[index].cpu().numpy().astype(np.uint8),
            "prediction": prediction.cpu().numpy().astype(np.uint8),
            "confidence": (255 * confidence).round().cpu().numpy().astype(np.uint8),
        }


def _histogram(values: Tensor) -> NDArray[np.int64]:
    """Count values in ``LOGIT_BINS`` bins; those outside the range are counted at its ends."""
    low, high = LOGIT_RANGE
    place = ((values.flatten() - low) * (LOGIT_BINS / (high - low))).long().clamp(0, LOGIT_BINS - 1)
    counts: NDArray[np.int64] = torch.bincount(place, minlength=LOGIT_BINS).cpu().numpy()
    return counts
