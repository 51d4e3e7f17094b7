"""One job of a benchmark: train or go on, test, write the results of its cells."""

import contextlib
import time
import traceback
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from crac.benchmark.results import CellResult
from crac.benchmark.suite import Cell, Job
from crac.data import Split, Store
from crac.data.upright import Upright
from crac.errors import InputError
from crac.evaluation import Case, Protocol
from crac.evaluation.variants import Tested, measure_variants
from crac.files import read_json, replacing, sha256, write_text
from crac.jobs import Outcome
from crac.models.checkpoint import Checkpoint
from crac.models.model import Model
from crac.training import Result, resume, train
from crac.training.config import PLANNED
from crac.training.run import RunFolder

NOT_FOR_OTHERS = ("command", "machine", "platform", "started")
"""What a run records about its start that is private to its machine, or differs without meaning."""

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


class Views:
    """What the figures need of the test volumes: histograms of their logits, a slice of the best and of the worst.

    Args:
        store: Where the images are.

    Attributes:
        winning: Histogram of the winning class's logits, over the voxels labelled foreground.
        other: The same of the other classes' logits.
        slices: ``best_`` and ``worst_`` name, dsc, aspect, image, label, prediction and confidence.
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
        """Return the slice with most foreground, the right way up, in bytes."""
        index = int((case.labels > 0).sum((1, 2)).argmax())
        confidence, prediction = case.scores[:, index : index + 1].softmax(0).max(0)
        image = np.array(self.store.image(case.name)[0, index : index + 1], dtype=np.float32)
        upright = Upright.prepared(self.store.manifest.recipe)
        arrays = {
            "image": 255 * image.clip(0, 1),
            "label": case.labels[index : index + 1].cpu().numpy(),
            "prediction": prediction.cpu().numpy(),
            "confidence": (255 * confidence).round().cpu().numpy(),
        }
        slices = {name: upright.turn(array)[0].astype(np.uint8) for name, array in arrays.items()}
        aspect = upright.aspect(self.store.cases[case.name].prepared_spacing)
        return {"name": np.array(case.name), "dsc": np.array(score), "aspect": np.array(aspect), **slices}


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
    size = max(64, job.config.batch_size or 0)
    model = Model.load(result.run, job.config.accelerator, batch_size=size, calibrated=False)
    changes = {"masks": job.masks} if job.masks else {}
    protocol = Protocol.for_network("paper", model.card.dims, store.class_names, store.ignore_index, **changes)
    missing = [cell for cell in job.cells if not folder.result(cell).exists()]
    views = Views(store)
    for cell, tested in measure_variants(missing, model, store, split, protocol, seen=views):
        if cell.as_trained:
            maps = folder.path / "maps" / f"{cell.name}.npz"
            maps.parent.mkdir(parents=True, exist_ok=True)
            with replacing(maps) as partial:
                np.savez_compressed(partial, allow_pickle=False, **views.slices)
        _result(cell, tested, job, result, store, split, views).save(folder.result(cell))
    return True


def _train(job: Job, path: Path) -> Result:
    if not (path / "config.yaml").exists():
        return train(job.config, path)
    own = RunFolder(path).config().model_dump(mode="json")
    for name, value in job.settings.items():
        if own[name] != value and not (value is None and name in PLANNED):
            raise InputError(f"{path} was trained with {name} {own[name]!r}, not {value!r}: remove it")
    return resume(path)


def _result(
    cell: Cell, tested: Tested, job: Job, result: Result, store: Store, split: Split, views: Views
) -> CellResult:
    rows, columns = tested.evaluation.rows, tested.evaluation.columns
    environment = read_json(result.run / "environment.json")[-1]
    curves = [name for name in result.history[0] if name in CURVES or name.startswith(("ece_", "lambda_", "rho_"))]
    pooled = {mask: one.to_dict(store.class_names) for mask, one in tested.evaluation.pooled().items()}
    return CellResult(
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
        settings={**job.settings, **RunFolder(result.run).config().model_dump(mode="json", include=set(PLANNED))},
        environment={name: value for name, value in environment.items() if name not in NOT_FOR_OTHERS},
        seconds={"training": sum(row["seconds"] for row in result.history), "evaluation": tested.seconds},
        calibrator=tested.calibrator,
        best_epoch=int(Checkpoint.read_info(RunFolder(result.run).best)["epoch"]),
        protocol=asdict(tested.evaluation.protocol),
        columns=columns,
        volumes={row["volume"]: [row[name] for name in columns] for row in rows},
        patients={row["volume"]: row["patient"] for row in rows},
        pooled={mask: _small(one, cell.as_trained) for mask, one in pooled.items()},
        logits={"range": LOGIT_RANGE, "winning": views.winning.tolist(), "other": views.other.tolist()}
        if cell.as_trained
        else {},
        # The training is that of the network as trained, whose file keeps its curves.
        history={name: [row[name] for row in result.history] for name in curves} if cell.as_trained else {},
    )


def _small(pooled: dict[str, Any], as_trained: bool) -> dict[str, Any]:
    """Leave out the bins that no figure shows: those of the classes within a region, and of variants all classes'."""
    parts = [*pooled["by_region"].values(), *([] if as_trained else [pooled])]
    for one in (one for part in parts for one in part["by_class"].values()):
        del one["bins"]
    return pooled


def _histogram(values: Tensor) -> NDArray[np.int64]:
    """Count values in ``LOGIT_BINS`` bins; those outside the range are counted at its ends."""
    low, high = LOGIT_RANGE
    place = ((values.flatten() - low) * (LOGIT_BINS / (high - low))).long().clamp(0, LOGIT_BINS - 1)
    counts: NDArray[np.int64] = torch.bincount(place, minlength=LOGIT_BINS).cpu().numpy()
    return counts
