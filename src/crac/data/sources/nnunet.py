"""nnU-Net v2's raw layout and the Medical Segmentation Decathlon's: both have ``dataset.json``."""

from pathlib import Path
from typing import Any

from crac.data.formats import IMAGES
from crac.data.nifti import stem
from crac.data.sources.source import IGNORE, RawCase, Source, case_name, check_folder, volumes, wrong_layout
from crac.errors import InputError
from crac.files import read_json


def read_nnunet(folder: Path) -> Source:
    """Read ``dataset.json`` in either style and pair images and labels."""
    check_folder(folder)
    path = folder / "dataset.json"
    if not path.is_file():
        raise wrong_layout(folder, "nnU-Net's layout, dataset.json, imagesTr and labelsTr")
    content = read_json(path)
    if not isinstance(content, dict):
        raise InputError(f"{path} must hold a JSON object; got {type(content).__name__}")
    channels = content.get("channel_names", content.get("modality"))
    if not isinstance(channels, dict) or not channels or not all(key.isdigit() for key in channels):
        raise InputError(f"{path}: channel_names (or modality) must map channel numbers to names; got {channels!r}")
    if content.get("file_ending", ".nii.gz") not in IMAGES:
        raise InputError(f"{path}: file_ending must be one of {', '.join(IMAGES)}; got {content['file_ending']!r}")
    classes, ignored = _classes(path, content.get("labels"))
    if isinstance(content.get("training"), list):
        cases, problems = _listed(folder, content["training"])
    else:
        cases, problems = pair_files(folder / "imagesTr", folder / "labelsTr", len(channels))
    return Source(
        name=str(content.get("name") or folder.resolve().name),
        folder=folder,
        class_names=tuple(classes),
        channel_names=tuple(str(channels[key]) for key in sorted(channels, key=int)),
        label_values={index: index for index in range(len(classes))} | ignored,
        cases=tuple(cases),
        problems=tuple(problems),
    )


def pair_files(images: Path, labels: Path, channels: int) -> tuple[list[RawCase], list[str]]:
    """Cases of ``NAME_0000.nii.gz``, ``NAME_0001.nii.gz``, … and ``NAME.nii.gz``, and what is missing."""
    problems: list[str] = []
    found, label_of = volumes(images, problems), volumes(labels, problems)
    names = label_of.keys() | {name[:-5] for name in found if name[-5:-4] == "_" and name[-4:].isdigit()}
    for name, path in found.items():
        if name[:-5] not in names:
            problems.append(f"{path}: an image's name must end in _0000 and so on")
        elif name[:-5] in label_of and name[-4:].isdigit() and int(name[-4:]) >= channels:
            problems.append(
                f"{path}: one channel too many, for {channels} {'is' if channels == 1 else 'are'} announced"
            )
    cases = []
    for name in sorted(names):
        if not case_name(name, problems):
            continue
        files = [found.get(f"{name}_{channel:04d}") for channel in range(channels)]
        missing = [
            f"{images / name}_{channel:04d}.nii.gz: missing image" for channel, file in enumerate(files) if not file
        ]
        if name not in label_of:
            missing.append(f"{labels / name}.nii.gz: missing label")
        problems += missing
        if not missing:
            cases.append(RawCase(name, name, None, tuple(file for file in files if file), label_of[name]))
    return cases, problems


def _listed(folder: Path, training: list[Any]) -> tuple[list[RawCase], list[str]]:
    """Cases of the Decathlon's list; a file may hold several channels along its fourth axis."""
    cases: list[RawCase] = []
    problems: list[str] = []
    for entry in training:
        if not isinstance(entry, dict) or not all(isinstance(entry.get(key), str) for key in ("image", "label")):
            problems.append(f"dataset.json: an entry of training must name an image and a label; got {entry!r}")
            continue
        image, label = folder / entry["image"], folder / entry["label"]
        missing = [
            f"{path}: missing {kind}" for path, kind in ((image, "image"), (label, "label")) if not path.is_file()
        ]
        problems += missing
        if not missing and case_name(stem(image), problems):
            cases.append(RawCase(stem(image), stem(image), None, (image,), label))
    return cases, problems


def _classes(path: Path, labels: object) -> tuple[list[str], dict[int, int]]:
    """Class names by index, from name -> value (nnU-Net) or value -> name (Decathlon), and what is to be ignored."""
    if not isinstance(labels, dict) or not labels:
        raise InputError(f"{path}: labels must map class names to numbers; got {labels!r}")
    if all(isinstance(value, str) for value in labels.values()) and all(key.isdigit() for key in labels):
        labels = {name: int(value) for value, name in labels.items()}
    regions = [name for name, value in labels.items() if isinstance(value, list)]
    if regions:
        raise InputError(f"{path}: labels must be single numbers; {', '.join(regions)} are regions, which overlap")
    if sorted(labels.values(), key=str) != sorted(range(len(labels)), key=str) or len(labels) < 2:
        raise InputError(f"{path}: labels must be numbered 0, 1, 2, … without gaps; got {labels!r}")
    if len(labels) - ("ignore" in labels) > IGNORE:
        raise InputError(f"{path}: labels must be at most {IGNORE}, for a byte holds each; got {len(labels)}")
    names = sorted(labels, key=lambda name: int(labels[name]))
    if "ignore" not in names:
        return names, {}
    if names[-1] != "ignore" or len(names) < 3:
        raise InputError(f"{path}: the label 'ignore' must have the highest number, after two classes; got {labels!r}")
    return names[:-1], {int(labels["ignore"]): IGNORE}
