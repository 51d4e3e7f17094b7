"""Commands killed at random moments, and started again: the end is the same as without.

``train``, ``prepare``, ``predict``, ``calibrate`` and ``benchmark`` run in processes of their own, which are killed
(SIGKILL), asked to end (SIGTERM), or find their disk full or read-only, at a moment drawn at random. After each of them
no file may be half-written under its own name; the same command, given again, must come to the same result to the last
bit. Full and read-only disks are real file systems in memory, which only root may mount; others get the signals alone.
"""

import atexit
import functools
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
from tests.campaigns.campaign import FailureError, main
from tests.training.runs import FORK, PRELOADED

from crac.benchmark import Suite, run_benchmark
from crac.benchmark.results import CellResult
from crac.calibration import load_calibrator
from crac.cli import main as command
from crac.data import Store, phantom, prepare
from crac.errors import InputError
from crac.files import PARTIAL
from crac.models.checkpoint import Checkpoint
from crac.models.model import Model
from crac.models.predict import Image, predict_images
from crac.training import TrainConfig, resume, train

FORK.set_forkserver_preload(
    [*PRELOADED, "crac.benchmark", "crac.cli.calibrate", "crac.evaluation.calibrate", "crac.report.page"]
)
WAYS = ("SIGKILL", "SIGTERM", "full disk", "read-only disk")
SUITE = {
    "title": "t", "datasets": {"d": {"phantom": {"kind": "cardiac", "patients": 4, "size": 32, "slices": 2}}},
    "backbones": ["unet"], "methods": {"ce": {"method": "ce"}}, "seeds": [0],
    "training": {"recipe": "paper", "epochs": 1, "width": 2, "batch_size": 8, "accelerator": "cpu",
                 "deterministic": True},
}  # fmt: skip


@dataclass(frozen=True)
class Work:
    """A command on one folder.

    Args:
        do: Begins it there, or goes on.
        check: Raises where something in the folder is half-written.
        result: What must be the same in the end.
        before: Lays out what the command finds there.
    """

    do: Callable[[Path, Path], None]
    check: Callable[[Path], None]
    result: Callable[[Path], str]
    before: Callable[[Path, Path], object] = lambda base, folder: None


def _config(base: Path) -> TrainConfig:
    common: dict[str, Any] = {
        "recipe": "paper",
        "width": 2,
        "batch_size": 8,
        "accelerator": "cpu",
        "deterministic": True,
        "pictures": False,
    }
    return TrainConfig(data=base / "store", epochs=2, **common)


def _train(base: Path, folder: Path) -> None:
    if (folder / "config.yaml").exists():
        resume(folder)
    else:
        train(_config(base), folder)


def _check_run(folder: Path) -> None:
    for name in ("last", "previous", "best"):
        if (folder / f"{name}.safetensors").exists():
            Checkpoint.load(folder / f"{name}.safetensors")


def _weights(folder: Path) -> str:
    tensors = Checkpoint.load(folder / "last.safetensors").tensors
    return _digest(*(name.encode() + tensors[name].numpy().tobytes() for name in sorted(tensors)))


def _prepare(base: Path, folder: Path) -> None:
    if not (folder / "manifest.json").exists() or (folder / ".crac-prepare").exists():
        prepare("acdc", base / "raw", folder)


def _check_store(folder: Path) -> None:
    if (folder / "manifest.json").exists():
        Store.open(folder).verify()


def _files(folder: Path) -> str:
    names = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    return _digest(*(name.encode() + (folder / name).read_bytes() for name in names))


def _predict(base: Path, folder: Path) -> None:
    images = [Image(path.name[:-7], (path,)) for path in sorted((base / "raw").glob("*/*frame??.nii.gz"))]
    predict_images(Model.load(base / "run", "cpu"), images, folder)


def _check_maps(folder: Path) -> None:
    for path in folder.glob("[!.]*.nii.gz"):
        np.asarray(nib.load(path).dataobj)


def _maps(folder: Path) -> str:
    paths = sorted(folder.glob("[!.]*.nii.gz"))
    return _digest(*(path.name.encode() + np.asarray(nib.load(path).dataobj).tobytes() for path in paths))


def _copy_run(base: Path, folder: Path) -> None:
    shutil.copytree(base / "run", folder)


def _calibrate(base: Path, folder: Path) -> None:
    with open(os.devnull, "w") as nowhere:  # noqa: PTH123
        sys.stdout = nowhere
        code = command(
            ["calibrate", str(folder), "--method", "temperature", "--force", "--folds", "2", "--device", "cpu"]
        )
    if code:
        raise InputError(f"calibrate ended with {code}")


def _check_calibration(folder: Path) -> None:
    if (folder / "calibration.json").exists():
        load_calibrator(folder / "calibration.json")


def _calibration(folder: Path) -> str:
    return _digest((folder / "calibration.json").read_bytes())


def _benchmark(base: Path, folder: Path) -> None:
    (base / "suite.yaml").exists() or (base / "suite.yaml").write_text(json.dumps(SUITE))
    summary = run_benchmark(Suite.load(base / "suite.yaml"), folder)
    if summary.broken:
        raise InputError(str(summary.broken))


def _check_benchmark(folder: Path) -> None:
    for path in (folder / "results").glob("[!.]*.json"):
        CellResult.load(path)


def _cells(folder: Path) -> str:
    cells = [CellResult.load(path) for path in sorted((folder / "results").glob("*.json"))]
    return _digest(*(repr((cell.volumes, cell.pooled, cell.temperature)).encode() for cell in cells))


WORKS = {
    "train": Work(_train, _check_run, _weights),
    "prepare": Work(_prepare, _check_store, _files),
    "predict": Work(_predict, _check_maps, _maps),
    "calibrate": Work(_calibrate, _check_calibration, _calibration, _copy_run),
    "benchmark": Work(_benchmark, _check_benchmark, _cells),
}


def _digest(*parts: bytes) -> str:
    return hashlib.sha256(b"".join(parts)).hexdigest()


def _child(name: str, base: Path, folder: Path, said: Path) -> None:
    """What the process does: 0 done, 2 refused in a sentence, 1 anything else, which is a defect."""
    with open(said, "w") as log:  # noqa: PTH123
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
        try:
            WORKS[name].do(base, folder)
        except InputError as error:
            print(f"InputError: {error}", file=log)
            log.flush()
            os._exit(2)
        except KeyboardInterrupt:
            os._exit(130)
        except BaseException:
            traceback.print_exc(file=log)
            log.flush()
            os._exit(1)
    os._exit(0)


@functools.cache
def base() -> Path:
    """What the commands work on: raw data, a store and a trained run, made once."""
    folder = Path(tempfile.mkdtemp(prefix="crac-kill-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    phantom.cardiac(folder / "raw", patients=4, size=32, slices=2)
    prepare("acdc", folder / "raw", folder / "store")
    split = Store.open(folder / "store").split().model_dump()
    split["validation"] += split["train"][:2]
    split["train"] = split["train"][2:] or split["test"]
    (folder / "split.json").write_text(json.dumps(split | {"test": []}))
    train(_config(folder).model_copy(update={"split": folder / "split.json"}), folder / "run")
    return folder


@functools.cache
def undisturbed(name: str) -> tuple[str, float]:
    """What a command comes to when nobody disturbs it, and how long it takes."""
    folder, again = base() / f"whole-{name}", base() / f"whole-{name}-again"
    for each in (folder, again):
        WORKS[name].before(base(), each)
    _run(name, folder)
    return WORKS[name].result(folder), _run(name, again)  # now that all is loaded


def _run(name: str, folder: Path) -> float:
    """Run a command to its end."""
    said, start = base() / "said.txt", time.monotonic()
    process = FORK.Process(target=_child, args=(name, base(), folder, said))
    process.start()
    process.join()
    if process.exitcode:
        raise FailureError(f"{name} ended with {process.exitcode}: {said.read_text()[-2000:]}")
    return time.monotonic() - start


def _mount(folder: Path, *options: str) -> None:
    subprocess.run(["mount", *options, str(folder)], check=True, capture_output=True)


def trial(draw: np.random.Generator, number: int, works: tuple[str, ...] = tuple(WORKS)) -> str:
    """Disturb one command once or twice, then let it come to its end."""
    name = works[number % len(works)]
    ways = WAYS if os.geteuid() == 0 else WAYS[:2]
    way = str(draw.choice(ways, p=[0.5, 0.2, 0.15, 0.15] if len(ways) == 4 else None))
    expected, seconds = undisturbed(name)
    work = WORKS[name]
    place = Path(tempfile.mkdtemp(prefix="crac-killed-"))
    disk, said = place / "disk", place / "said.txt"
    disk.mkdir()
    mounted = "disk" in way
    try:
        if mounted:
            _mount(disk, "-t", "tmpfs", "-o", "size=256m", "none")
        folder = disk / "out"
        work.before(base(), folder)
        if way == "full disk":
            left = int(draw.integers(4, 600)) * 1024
            _mount(disk, "-o", f"remount,size={shutil.disk_usage(disk).used + left}")
        process = FORK.Process(target=_child, args=(name, base(), folder, said))
        process.start()
        process.join(draw.uniform(0, seconds) if way != "full disk" else 60)
        if process.exitcode is None and way.startswith("SIG"):
            os.kill(process.pid or 0, getattr(signal, way))
        elif process.exitcode is None and way == "read-only disk":
            subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=False, capture_output=True)  # busy: not now
        process.join(60)
        if process.exitcode is None:
            os.kill(process.pid or 0, signal.SIGKILL)
            raise FailureError(f"{name} does not end after {way}")
        if process.exitcode == 1:
            raise FailureError(f"{name} after {way}: {said.read_text()[-3000:]}")
        if mounted:
            subprocess.run(["mount", "-o", "remount,rw,size=256m", str(disk)], check=True, capture_output=True)
        if folder.exists():
            work.check(folder)
        _run(name, folder)
        if (found := work.result(folder)) != expected:
            raise FailureError(f"{name} after {way}: the result differs, {found} where {expected} was")
        if left := [path.name for path in folder.rglob(f"{PARTIAL}*")]:
            raise FailureError(f"{name} after {way}: {left[0]} is left")
    finally:
        if mounted:
            subprocess.run(["umount", "--lazy", str(disk)], check=False, capture_output=True)
        shutil.rmtree(place, ignore_errors=True)
    return f"{name}, {way}"


if __name__ == "__main__":
    sys.exit(main("kill", trial, __doc__, step=10))
