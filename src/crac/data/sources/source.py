"""What every reader returns, and how they tell one layout from another."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from crac.data.formats import is_image
from crac.data.nifti import stem
from crac.errors import InputError

PHANTOM_NOTE = "PHANTOM.txt"
"""File that marks a folder of made-up patients, so that they are never reported as real ones."""
IGNORE = 255
"""Class index of voxels that nobody has labelled; they count neither in training nor in any measure."""
CASE_NAME = r"[A-Za-z0-9][A-Za-z0-9_.+-]*"
LONGEST_NAME = 200


@dataclass(frozen=True)
class RawCase:
    """One labelled volume as it lies on disk.

    Args:
        name: Unique in the data set; becomes a folder name.
        patient: Cases of one patient never part in a split.
        group: Stratum for splits, e.g. the pathology, if known.
        images: One file a channel, or one file that holds all channels.
        label: The label map.
    """

    name: str
    patient: str
    group: str | None
    images: tuple[Path, ...]
    label: Path


@dataclass(frozen=True)
class Source:
    """A data set: where its files are and what its labels mean.

    Args:
        name: Name of the data set.
        folder: The folder that was read.
        class_names: Index = class, 0 the background.
        channel_names: One a channel; ``CT`` is treated as such.
        label_values: Value in the files -> class index, or :data:`IGNORE`.
        cases: Every complete case.
        problems: One sentence for each defect of the layout.
    """

    name: str
    folder: Path
    class_names: tuple[str, ...]
    channel_names: tuple[str, ...]
    label_values: Mapping[int, int]
    cases: tuple[RawCase, ...]
    problems: tuple[str, ...] = ()


def check_folder(folder: Path) -> None:
    """Refuse what is not a folder with something in it."""
    if not folder.is_dir():
        what = "is a file" if folder.exists() else "does not exist"
        raise InputError(f"RAW must be a folder; got {str(folder)!r}, which {what}")
    if not any(folder.iterdir()):
        raise InputError(f"RAW must hold a data set; {str(folder)!r} is empty")


def volumes(folder: Path, problems: list[str]) -> dict[str, Path]:
    """File stem -> path of every image in a folder, be it a file or a DICOM series; hidden ones are not data.

    Notes a problem where two differ in their ending only.
    """
    found: dict[str, Path] = {}
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if is_image(path) and (other := found.setdefault(stem(path), path)) != path:
            problems.append(f"{path} and {other.name} have one name: which of them counts cannot be told")
    return found


def case_name(name: str, problems: list[str]) -> bool:
    """Whether a name can be a folder name; notes a problem if not."""
    problem = ""
    if re.fullmatch(CASE_NAME, name) is None:
        problem = "may only hold letters, digits, '_', '.', '+' and '-'"
    elif len(name) > LONGEST_NAME:
        problem = f"may have {LONGEST_NAME} characters at most; it has {len(name)}"
    problems += [f"the case name {name!r} {problem}"] * bool(problem)
    return not problem


def data_set_name(folder: Path, name: str) -> str:
    """The data set's name, which says so when its patients are made up."""
    return f"{name} phantom" if (folder / PHANTOM_NOTE).exists() else name


def looks_like(folder: Path) -> str | None:
    """The layout a folder has, in words, or None."""
    names = {path.name for path in folder.iterdir() if path.is_dir()}
    if "dataset.json" in {path.name for path in folder.iterdir()}:
        return "nnU-Net or Decathlon (crac prepare nnunet)"
    if {"TrainingImg", "TrainingMask"} & names:
        return "FLARE21 (crac prepare flare)"
    if {"imagesTr", "labelsTr"} & names:
        return "FLARE22, or nnU-Net without its dataset.json (crac prepare flare, or add dataset.json)"
    if any(re.fullmatch(r"patient\d+", name) for name in names):
        return "ACDC (crac prepare acdc)"
    return None


def wrong_layout(folder: Path, wanted: str) -> InputError:
    """The error for a folder in another layout, saying which one it looks like, or where to look."""
    found = looks_like(folder)
    if found is None:
        below = ((path, looks_like(path)) for path in sorted(folder.iterdir()) if path.is_dir())
        found = next((f"{layout}, in its sub-folder {path.name!r}" for path, layout in below if layout), None)
    hint = f"it looks like {found}" if found else "it looks like no layout that is known here"
    return InputError(f"RAW must have {wanted}; {str(folder)!r} has not, {hint}")
