"""Out-of-fold probabilities of a model that nnU-Net has trained: what it is calibrated on."""

import os
import re
from collections import Counter
from pathlib import Path
from typing import Any

from crac.data.nifti import ENDINGS
from crac.errors import InputError, ProblemsError
from crac.evaluation.audit import checked_cases
from crac.evaluation.calibrate import Calibratable, of_cases
from crac.evaluation.pairing import FilePair
from crac.evaluation.protocol import Regions
from crac.files import read_json
from crac.progress import Track, silent

PLACES = (("nnUNet_raw", "labelsTr"), ("nnUNet_preprocessed", "gt_segmentations"))
"""Where nnU-Net keeps the labels of a data set."""


def of_model(
    model: Path,
    labels: Path | None = None,
    regions: Regions | None = None,
    patient: str | None = None,
    *,
    jobs: int = 1,
    track: Track = silent,
) -> Calibratable:
    """The validation cases of all folds, each predicted by a network that was not trained on it.

    Args:
        model: ``nnUNet_results/DATASET/TRAINER__PLANS__CONFIGURATION``, trained with ``--npz``.
        labels: Folder of labels; by default those of the data set, in ``nnUNet_raw`` or ``nnUNet_preprocessed``.
        regions: Where neighbourhoods are taken; by default in slices if the configuration is 2-D, else in the volume.
        patient: See :func:`crac.evaluation.calibrate.of_files`.
        jobs: Processes that check the files.
        track: Shows progress.

    Raises:
        ProblemsError: Every defect of the files.
    """
    dataset, plans = _description(model, "dataset.json", "labels"), _description(model, "plans.json", "configurations")
    values = dataset["labels"].values()
    if any(isinstance(value, list | tuple) for value in values):
        raise InputError(f"{model / 'dataset.json'}: calibration needs one label per voxel; got overlapping regions")
    if not all(isinstance(value, int) for value in values):
        raise InputError(f"{model / 'dataset.json'}: labels must be whole numbers by name; got {dataset['labels']}")
    ending = dataset.get("file_ending", ".nii.gz")
    if not isinstance(ending, str) or ending not in ENDINGS:
        raise InputError(f"{model / 'dataset.json'}: file_ending must be one of {', '.join(ENDINGS)}; got {ending!r}")
    folder = labels or _labels(str(plans.get("dataset_name")))
    ignored = dataset["labels"].get("ignore")
    pairs = [_pair(path, folder, ending, ignored) for path in _archives(model)]
    twice = [name for name, number in Counter(pair.name for pair in pairs).items() if number > 1]
    problems = [f"{name} was validated in more than one fold" for name in twice]
    problems += [
        f"{pair.probabilities[0]} has no label file {pair.label}" for pair in pairs if not pair.label.is_file()
    ]
    if problems:
        raise ProblemsError(str(model), problems)
    cases, num_classes = checked_cases(pairs, [], str(model), patient, jobs=jobs, track=track)
    names = sorted((value, name) for name, value in dataset["labels"].items() if name != "ignore")
    named = [name for _, name in names] if len(names) == num_classes else []
    return of_cases(cases, num_classes, regions or _regions(model, plans), ignored, named)


def _description(model: Path, name: str, part: str) -> dict[str, Any]:
    """One of the files that nnU-Net keeps beside its folds, with its part that must be there."""
    if not (model / name).is_file():
        raise InputError(
            "MODEL must be a folder of nnUNet_results/DATASET that nnU-Net has trained, such as "
            f"nnUNetTrainer__nnUNetPlans__2d; {model} has no {name}"
        )
    content = read_json(model / name)
    if not isinstance(content, dict) or not isinstance(content.get(part), dict):
        raise InputError(f"{model / name} must hold a JSON object with {part!r}, an object too")
    return content


def _archives(model: Path) -> list[Path]:
    folds = sorted(path for path in model.glob("fold_*") if re.fullmatch(r"fold_\d+", path.name))
    found = [path for fold in folds for path in sorted((fold / "validation").glob("*.npz"))]
    if not found:
        raise InputError(
            f"{model} has no fold_*/validation/*.npz; let nnU-Net write them: "
            "nnUNetv2_train DATASET CONFIGURATION FOLD --val --npz"
        )
    return found


def _labels(dataset: str) -> Path:
    for variable, name in PLACES:
        folder = Path(os.environ.get(variable, "")) / dataset / name
        if variable in os.environ and folder.is_dir():
            return folder
    raise InputError(
        f"the labels of {dataset} are neither in nnUNet_raw nor in nnUNet_preprocessed; name their folder with --labels"
    )


def _pair(archive: Path, labels: Path, ending: str, ignored: int | None) -> FilePair:
    beside = archive.with_name(archive.stem + ending)
    segmentation = beside if beside.is_file() else None
    return FilePair(archive.stem, labels / f"{archive.stem}{ending}", (archive,), segmentation, ignore_index=ignored)


def _regions(model: Path, plans: dict[str, Any]) -> Regions:
    configurations = plans["configurations"]
    found: Any = {"inherits_from": model.resolve().name.rpartition("__")[2]}
    for _ in configurations:  # a configuration holds only what differs from the one that it inherits from
        if isinstance(found, dict) and "patch_size" not in found:
            found = configurations.get(str(found.get("inherits_from")))
    patch = found.get("patch_size") if isinstance(found, dict) else None
    return "slice" if isinstance(patch, list) and len(patch) == 2 else "volume"
