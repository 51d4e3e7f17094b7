"""Calibrated copies of probability files: of the same kind, with their names, geometry and type."""

import shutil
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import nibabel as nib
import numpy as np
import torch

from crac.calibration import Calibrator, load_calibrator
from crac.calibration.volume import calibrate_volume
from crac.data.nifti import ENDINGS, read_image, stem
from crac.errors import InputError, ProblemsError
from crac.evaluation.case import slice_axis
from crac.evaluation.pairing import CLASS_FILE, OURS
from crac.evaluation.reading import defect_of
from crac.evaluation.stored import Archive, Foreground, OneFile, OneFileAClass, Stored
from crac.files import remove_folder, remove_partials, replacing, writing
from crac.metrics.counts import SUM_TOLERANCE
from crac.progress import Track, silent

CALIBRATOR = "calibration.json"
"""Copy of the calibrator in the folder of what it made."""
BESIDE = ("dataset.json", "plans.json", "predict_from_raw_data_args.json")
"""What nnU-Net's own ensembling looks for beside its archives."""


class Applied(NamedTuple):
    """Names of the volumes that were calibrated, and of those that were there already."""

    written: list[str]
    skipped: list[str]


def apply_calibrator(path: Path, probabilities: Path, out: Path, track: Track = silent) -> Applied:
    """Calibrate every probability file of a folder; one volume is in memory at a time.

    Args:
        path: File of a calibrator.
        probabilities: Folder of nnU-Net ``.npz``, of 4-D NIfTI with the classes first or last, of one NIfTI a class, or
            of one NIfTI with the foreground's probability alone for binary tasks.
        out: Folder to write to. What is finished there already, by the same calibrator, is left alone.
        track: Shows progress.

    Raises:
        InputError: A file cannot be calibrated; those before it are finished.
    """
    calibrator = load_calibrator(path)
    if not probabilities.is_dir():
        raise InputError(f"--probabilities must be a folder; got {probabilities}")
    if out.exists() and (not out.is_dir() or out.samefile(probabilities)):
        raise InputError(f"--out must be a folder other than --probabilities, or not exist yet; got {out}")
    volumes = find_stored(probabilities, calibrator.num_classes)
    made = not out.exists()
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
    remove_partials(out)
    _claim(out, path)
    done = Applied([], [])
    try:
        for name in BESIDE:
            _copy(probabilities / name, out)
        for volume in track(volumes, "calibrating", len(volumes)):
            if _finished(volume, out):
                done.skipped.append(volume.name)
            else:
                _apply(calibrator, volume, out)
                done.written.append(volume.name)
    except InputError:
        if made and not done.written:  # a folder without results would keep another calibrator out
            remove_folder(out)
        raise
    return done


def find_stored(folder: Path, num_classes: int) -> list[Stored]:
    """The probabilities in a folder, volume by volume; a label map beside an archive is none.

    Raises:
        ProblemsError: Every file that fits nowhere.
    """
    files = sorted(path for path in folder.iterdir() if path.is_file() and not path.name.startswith("."))
    found: list[Stored] = [Archive(path) for path in files if path.suffix == ".npz"]
    archives = {one.name for one in found}
    volumes = [path for path in files if path.name.endswith(ENDINGS) and stem(path) not in archives]
    if ours := [path for path in volumes if stem(path).endswith(OURS)]:
        volumes = ours  # beside labels and other maps
    parts: dict[str, dict[int, Path]] = defaultdict(dict)
    problems = []
    for path in volumes:
        match = CLASS_FILE.fullmatch(stem(path))
        if _has_classes(path):
            found.append(OneFile(path, num_classes))
        elif num_classes == 2 and match is None:
            found.append(Foreground(path))
        elif match is None or int(match["number"]) in parts[match["name"]]:
            problems.append(f"{path} holds no classes: expected a fourth axis, or a name such as NAME_1.nii.gz")
        else:
            parts[match["name"]][int(match["number"])] = path
    for name, classes in sorted(parts.items()):
        if sorted(classes) == list(range(num_classes)) and (num_classes > 2 or _are_two_classes(*classes.values())):
            found.append(OneFileAClass(name, tuple(classes[number] for number in range(num_classes))))
        elif num_classes == 2:  # the numbers are not those of classes
            found += [Foreground(path) for path in classes.values()]
        else:
            listed = ", ".join(map(str, sorted(classes)))
            wanted = f"expected a file for each of the classes 0..{num_classes - 1}"
            problems.append(f"{folder / name}: {wanted}; got {listed}")
    if problems:
        raise ProblemsError(str(folder), problems)
    if not found:
        raise InputError(f"--probabilities must hold .npz, .nii.gz or .nii files; {folder} holds none")
    return found


def _are_two_classes(background: Path, foreground: Path) -> bool:
    """Whether ``NAME_0`` and ``NAME_1`` are the classes of one volume, and not the foregrounds of two."""
    try:
        first, second = read_image(background).array, read_image(foreground).array
    except InputError:  # whatever is wrong with it is said when it is read
        return True
    return first.shape == second.shape and bool(np.abs(first + second - 1).max() < SUM_TOLERANCE)


def _has_classes(path: Path) -> bool:
    try:
        shape = nib.load(path).shape
    except Exception:  # whatever is wrong with it is said when it is read
        return True
    return any(size > 1 for size in shape[3:])


def _apply(calibrator: Calibrator, volume: Stored, out: Path) -> None:
    scores, spacing = volume.read()
    if len(scores) != calibrator.num_classes:
        raise InputError(f"{volume.files[0]} has {len(scores)} classes, the calibrator is for {calibrator.num_classes}")
    defect = defect_of(scores)
    if defect is not None:
        raise InputError(f"{volume.files[0]}: {defect}")
    axis = 0
    if calibrator.regions == "slice":
        if spacing is None:
            raise InputError(f"{volume.files[0]}: no .pkl beside it says along which axis its slices follow each other")
        axis = slice_axis(spacing, scores.shape[1:])
    winner = scores.argmax(0) if calibrator.keeps_labels else None
    found = calibrate_volume(calibrator, torch.from_numpy(scores), axis, from_probabilities=True).numpy()
    for path in volume.beside if calibrator.keeps_labels else volume.beside[:1]:
        _copy(path, out)
    volume.write(out, found, winner)


def _claim(out: Path, path: Path) -> None:
    """Keep the calibrator beside what it makes; what another one made is not mixed with it."""
    there = out / CALIBRATOR
    if there.is_file() and there.read_bytes() != path.read_bytes():
        raise InputError(f"--out {out} holds what another calibrator made; choose another folder")
    _copy(path, out, CALIBRATOR)


def _finished(volume: Stored, out: Path) -> bool:
    """Whether every file is there, and no older than what it was made from."""
    pairs = [(path, out / path.name) for path in volume.files]
    return all(made.is_file() and made.stat().st_mtime >= path.stat().st_mtime for path, made in pairs)


def _copy(path: Path, out: Path, name: str | None = None) -> None:
    if path.is_file():
        with replacing(out / (name or path.name)) as partial:
            shutil.copyfile(path, partial)
