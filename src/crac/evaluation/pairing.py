"""Which probability files belong to which label file."""

import re
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from crac.data.nifti import ENDINGS, stem
from crac.errors import InputError
from crac.evaluation.nnunet import Orientation

CLASS_FILE = re.compile(r"(?P<name>.+)[_-](?:class|c|prob|p)?[_-]?(?P<number>\d{1,4})")
"""One file a class: ``NAME_0``, ``NAME_class1``, ``NAME-p02``, ``NAME_0003``."""

OURS = "_probabilities"
"""How ``crac predict`` ends the name of a file that holds all classes."""


@dataclass(frozen=True)
class FilePair:
    """A label file and its probabilities.

    Attributes:
        name: Name of the label file, without its ending.
        label: The label map.
        probabilities: The ``.npz``, the 4-D NIfTI, or one NIfTI a class in the order of the classes.
        segmentation: The label map nnU-Net writes beside its ``.npz``, if it is there.
        orientation: Orientation of an ``.npz`` whose ``.pkl`` is missing, if it is known.
        ignore_index: Label of voxels that belong to no class, if there is one.
        image: The image, if it is to be looked at and there is one.
    """

    name: str
    label: Path
    probabilities: tuple[Path, ...]
    segmentation: Path | None = None
    orientation: Orientation | None = None
    ignore_index: int | None = None
    image: Path | None = None


def find_image(images: Path, name: str) -> Path | None:
    """The image ``NAME.nii.gz`` or ``NAME_0000.nii.gz`` in a folder, if there is one."""
    files = [images / f"{name}{end}{kind}" for end in ("", "_0000") for kind in ENDINGS]
    return next((path for path in files if path.is_file()), None)


def find_pairs(
    probabilities: Path, labels: Path, orientation: Orientation | None = None
) -> tuple[list[FilePair], list[str]]:
    """Pair the files of two folders by name; ``orientation`` is that of ``.npz`` whose ``.pkl`` are missing.

    Returns:
        The cases that have both parts, and a sentence for each file that has no partner or too many.
    """
    for argument, folder in (("--probabilities", probabilities), ("--labels", labels)):
        if not folder.is_dir():
            raise InputError(f"{argument} must be a folder; got {folder}")
    problems: list[str] = []
    label_files = _by_name(labels, ENDINGS, problems)
    if not label_files:
        raise InputError(f"--labels must hold .nii.gz or .nii files; {labels} holds none")
    archives = {path.name.removesuffix(".npz"): path for path in _files(probabilities, (".npz",))}
    volumes = _by_name(probabilities, ENDINGS, problems)
    if ours := {name: path for name, path in volumes.items() if name.endswith(OURS)}:
        volumes = {name.removesuffix(OURS): path for name, path in ours.items()}  # beside labels and other maps
    whole = {name: path for name, path in volumes.items() if name in label_files}
    parts: dict[str, dict[int, Path]] = defaultdict(dict)
    for name in sorted(volumes.keys() - whole.keys()):
        match = CLASS_FILE.fullmatch(name)
        if match is None or match["name"] not in label_files:
            problems.append(f"{volumes[name]} has no label file {name}.nii.gz")
        elif int(match["number"]) in parts[match["name"]]:
            problems.append(f"{volumes[name]} is a second file for class {int(match['number'])} of {match['name']}")
        else:
            parts[match["name"]][int(match["number"])] = volumes[name]
    problems += [
        f"{archives[name]} has no label file {name}.nii.gz" for name in sorted(archives.keys() - label_files.keys())
    ]

    cases = []
    for name, label in label_files.items():
        numbers = sorted(parts.get(name, {}))
        kinds = (name in archives) + (name in whole and name not in archives) + bool(numbers)
        if kinds == 0:
            problems.append(f"{label} has no probabilities: expected {name}.npz, {name}.nii.gz or {name}_0.nii.gz, ...")
        elif kinds > 1:
            problems.append(f"{label} has probabilities in more than one form in {probabilities}; keep one")
        elif name in archives:
            cases.append(FilePair(name, label, (archives[name],), whole.get(name), orientation))
        elif numbers == [1]:  # a binary task: the foreground alone
            cases.append(FilePair(name, label, (parts[name][1],)))
        elif numbers and (numbers != list(range(len(numbers))) or len(numbers) < 2):
            problems.append(
                f"{label} has probabilities for classes {', '.join(map(str, numbers))}; expected a file for each of "
                f"0..{max(*numbers, 1)}"
            )
        elif numbers:
            cases.append(FilePair(name, label, tuple(parts[name][number] for number in numbers)))
        else:
            cases.append(FilePair(name, label, (whole[name],)))
    return cases, problems


def _files(folder: Path, endings: tuple[str, ...]) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.name.endswith(endings) and not path.name.startswith("."))


def _by_name(folder: Path, endings: tuple[str, ...], problems: list[str]) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for path in _files(folder, endings):
        if stem(path) in found:
            problems.append(f"{path} and {found[stem(path)].name} have the same name; keep one")
        found.setdefault(stem(path), path)
    return found
