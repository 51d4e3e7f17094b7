"""Cross-validation: one run a fold, by patient, so that every case is predicted by a network that never saw it.

FOLDS/folds.json     the settings, and which cases each fold tests
FOLDS/fold_0/        run of the first fold, its split inside; fold_1/ and so on likewise
FOLDS/fold_0.log     what it printed, where several are trained at a time, and why it failed, if it did
"""

import contextlib
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from crac.data import Split, Store
from crac.errors import InputError, check_number
from crac.files import read_json, write_json, writing
from crac.jobs import Outcome, run_jobs
from crac.models.checkpoint import Checkpoint, DamagedError
from crac.models.folds import FOLDS
from crac.progress import duration, note
from crac.training.config import PLANNED, TrainConfig
from crac.training.engine import check_devices
from crac.training.plan import planned as planned_settings
from crac.training.run import RunFolder
from crac.training.train import check_settings, resume, train


@dataclass(frozen=True)
class Fold:
    """One fold of a cross-validation.

    Args:
        config: Settings of its training.
        split: Who trains, validates and is left out.
        path: Folder of its run.
    """

    config: TrainConfig
    split: Split
    path: Path

    @property
    def name(self) -> str:
        """The name of its folder."""
        return self.path.name

    def finished(self) -> bool:
        """Whether its last epoch is reached."""
        return RunFolder(self.path).epochs_done() >= self.config.epochs


@dataclass(frozen=True)
class FoldsResult:
    """How a cross-validation stands.

    Args:
        path: Its folder.
        dice: Best validation Dice of each finished fold.
        broken: Name of a fold -> why it failed.
        left: Folds that are not finished.
        stopped: Whether somebody asked for the end.
    """

    path: Path
    dice: dict[str, float]
    broken: dict[str, str]
    left: list[str]
    stopped: bool = False


def train_folds(
    config: TrainConfig,
    out: str | Path,
    folds: int = 5,
    only: Sequence[int] = (),
    *,
    jobs: int | None = None,
    ray: str | None = None,
) -> FoldsResult:
    """Train every fold that is not finished; the same call goes on after an interruption.

    Args:
        config: Settings of all trainings; the split is drawn with its ``split_seed``.
        out: Folder of the cross-validation.
        folds: Number of folds.
        only: Folds to train now, counted from 0; all by default.
        jobs: Folds at a time, in processes that share the GPUs.
        ray: Address of a Ray cluster that trains them instead, ``local`` to start one.
    """
    path = Path(out).absolute()
    for number in only:
        check_number("fold", number, least=0, most=folds - 1, whole=True)
    if jobs is not None:
        check_number("jobs", jobs, least=1, whole=True)
    planned = _plan(config.absolute(), path, folds)
    chosen = [planned[number] for number in only] if only else planned
    waiting = [fold for fold in chosen if not fold.finished()]
    broken: dict[str, str] = {}
    stopped = False
    alone = ray is None and (jobs or 1) == 1
    for event in run_jobs(iter(waiting), partial(_train_fold, quiet=not alone), jobs, ray):
        if isinstance(event, Fold):
            counts = f"{len(event.split.train)} cases train, {len(event.split.test)} are left out"
            note(f"{event.name} of {folds} begins: {counts}")
            continue
        if event.problem:
            broken[event.job] = event.problem
        note(f"{event.job} {_state(event)} in {duration(event.seconds)}")
        if stopped := event.stopped:
            break
    dice = {}
    for fold in planned:
        if fold.finished():
            try:
                dice[fold.name] = float(Checkpoint.read_info(RunFolder(fold.path).best)["dice"])
            except DamagedError as error:
                broken[fold.name] = str(error)
    return FoldsResult(path, dice, broken, [fold.name for fold in planned if fold.name not in dice], stopped)


def resume_folds(path: str | Path, *, jobs: int | None = None, ray: str | None = None) -> FoldsResult:
    """Go on with a cross-validation, given its folder."""
    file = Path(path) / FOLDS
    content = _written(file)
    config = TrainConfig.written(content["settings"], str(file))
    return train_folds(config, path, len(content["test"]), jobs=jobs, ray=ray)


def _written(file: Path) -> dict[str, dict[str, Any]]:
    """The settings of a cross-validation and the cases that each fold leaves out."""
    content = read_json(file)
    if not isinstance(content, dict) or not all(isinstance(content.get(name), dict) for name in ("settings", "test")):
        raise InputError(f"{file} is damaged: it must hold the settings and the cases that each fold leaves out")
    return content


def _plan(config: TrainConfig, path: Path, folds: int) -> list[Fold]:
    """Draw the folds and write them down, or check that they are those of the folder."""
    if config.split is not None:
        raise InputError(f"split must not be given with folds, which draw their own; got {config.split}")
    if config.devices * config.nodes > 1:
        raise InputError("folds are trained on one device each: leave devices and nodes at 1, and raise jobs")
    check_devices(config)
    check_number("folds", folds, least=2, whole=True)
    store = Store.open(config.data)
    splits = Split.k_fold(store.cases, folds, config.split_seed)
    if not all(split.train and split.validation for split in splits):
        patients = len({case.patient for case in store.cases.values()})
        raise InputError(
            f"folds must leave each network a patient to train on and one to validate; {folds} folds of {patients} "
            "patients do not"
        )
    if (path / FOLDS).exists():
        own = _written(path / FOLDS)["settings"]
        left_open = [name for name in PLANNED if getattr(config, name) is None]
        config = TrainConfig.make({**config.model_dump(), **{name: own.get(name) for name in left_open}})
    else:
        config, reason = planned_settings(config, store, min(len(split.train) for split in splits))
        if reason:
            note(f"planned {reason}")
    planned = [Fold(config, split, path / f"fold_{number}") for number, split in enumerate(splits)]
    content: dict[str, Any] = {
        "settings": config.model_dump(mode="json"),
        "test": {fold.name: fold.split.test for fold in planned},
    }
    if (path / FOLDS).exists():
        own = _written(path / FOLDS)
        settings = TrainConfig.written(own["settings"], str(path / FOLDS)).model_dump(mode="json")
        changed = [name for name, value in content["settings"].items() if settings[name] != value]
        if changed or own["test"] != content["test"]:
            what = ", ".join(changed) or "cases"
            raise InputError(f"{path} holds a cross-validation with other {what}: choose another --out")
    elif path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise InputError(f"{path} is not an empty folder: choose another --out")
    else:
        for split in splits:
            check_settings(config, store, split)
        with writing(path):
            path.mkdir(parents=True, exist_ok=True)
        write_json(path / FOLDS, content)
    return planned


def _train_fold(fold: Fold, quiet: bool) -> Outcome:
    """Train a fold, or go on; whatever goes wrong is written down and returned, not raised."""
    start = time.perf_counter()
    log = fold.path.with_suffix(".log")
    try:
        with contextlib.ExitStack() as stack:
            if quiet:
                stream = stack.enter_context(log.open("a", encoding="utf-8"))
                stack.enter_context(contextlib.redirect_stdout(stream))
            begun = (fold.path / "config.yaml").exists()
            result = resume(fold.path) if begun else train(fold.config, fold.path, fold.split)
        return Outcome(fold.name, time.perf_counter() - start, stopped=not result.finished)
    except Exception as error:  # one broken fold must not take the others along
        with log.open("a", encoding="utf-8") as stream:
            traceback.print_exc(file=stream)
        problem = (str(error).strip() or type(error).__name__).splitlines()[0]
        return Outcome(fold.name, time.perf_counter() - start, problem)


def _state(outcome: Outcome) -> str:
    return f"failed ({outcome.problem})" if outcome.problem else "stopped" if outcome.stopped else "done"
