"""Whether nnU-Net and the trainers find each other."""

import contextlib
import importlib
import importlib.metadata
import io
import os
import re
from collections.abc import Sequence
from pathlib import Path

from crac.integrations.nnunet import TRAINERS, trainers_folder

VARIABLE = "nnUNet_extTrainer"
FOLDERS = ("nnUNet_raw", "nnUNet_preprocessed", "nnUNet_results")
OLDEST = (2, 8)


def problems() -> list[str]:
    """One sentence for each thing that would stop ``nnUNetv2_train``; empty when it would start."""
    found = []
    for name in FOLDERS:
        folder = os.environ.get(name)
        if folder is None:
            found.append(f"{name} is not set; run: export {name}=/path/to/folder")
        elif not Path(folder).is_dir():
            found.append(f"{name}={folder} is not a folder; run: mkdir -p {folder}")
    listed = [Path(entry).resolve() for entry in os.environ.get(VARIABLE, "").split(os.pathsep) if entry]
    there = trainers_folder().resolve() in listed
    if not there:
        others = f"{os.pathsep}${VARIABLE}" if listed else ""
        found.append(f'{VARIABLE} lacks the trainers; run: export {VARIABLE}="$(crac nnunet path){others}"')
    return found + _nnunet_problems(TRAINERS if there else ())


def _nnunet_problems(trainers: Sequence[str]) -> list[str]:
    try:
        version = importlib.metadata.version("nnunetv2")
    except importlib.metadata.PackageNotFoundError:
        return ["nnunetv2 is not installed; run: pip install 'crac[nnunet]'"]
    if tuple(int(part) for part in re.findall(r"\d+", version)[:2]) < OLDEST:
        wanted = ".".join(map(str, OLDEST))
        return [f"nnunetv2 {version} is older than {wanted}; run: pip install --upgrade 'nnunetv2>={wanted}'"]
    # nnU-Net prints what it searches; that is not part of the answer.
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            find = importlib.import_module("nnunetv2.utilities.find_objects").recursive_find_trainer_class_by_name
        except Exception as error:  # whatever its dependencies raise
            return [f"nnunetv2 {version} cannot be imported: {_first_line(error)}"]
        for name in trainers:
            try:
                find(name)
            except Exception as error:
                return [f"nnU-Net does not find {name}: {_first_line(error)}"]  # one file holds them all
    return []


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]
