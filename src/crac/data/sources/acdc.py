"""ACDC in its original layout: ``patientNNN/`` with ``Info.cfg``, two frames and their ``_gt``."""

import re
from pathlib import Path

from crac.data.sources.source import RawCase, Source, check_folder, data_set_name, volumes, wrong_layout

CLASS_NAMES = ("background", "RV", "MYO", "LV")


def read_acdc(folder: Path) -> Source:
    """Find the end-diastolic and end-systolic frame of every patient."""
    check_folder(folder)
    patients = sorted(path for path in folder.iterdir() if path.is_dir() and re.fullmatch(r"patient\d+", path.name))
    if not patients:
        raise wrong_layout(folder, "ACDC's layout, folders patient001, patient002, …")
    cases: list[RawCase] = []
    problems: list[str] = []
    for patient in patients:
        info, files = _read_info(patient / "Info.cfg", problems), volumes(patient, problems)
        for phase in ("ED", "ES"):
            frame = info.get(phase, "")
            if not frame.isdigit():
                if info:
                    problems.append(f"{patient / 'Info.cfg'}: {phase} must be a frame number; got {frame!r}")
                continue
            name = f"{patient.name}_frame{int(frame):02d}"
            image, label = files.get(name), files.get(f"{name}_gt")
            if image and label:
                cases.append(RawCase(name, patient.name, info.get("Group"), (image,), label))
                continue
            for path, kind, ending in ((image, "image", ""), (label, "label", "_gt")):
                if path is None:
                    problems.append(f"{patient / name}{ending}.nii.gz: missing {kind} of the {phase} frame")
    return Source(
        name=data_set_name(folder, "ACDC"),
        folder=folder,
        class_names=CLASS_NAMES,
        channel_names=("MRI",),
        label_values={index: index for index in range(len(CLASS_NAMES))},
        cases=tuple(cases),
        problems=tuple(problems),
    )


def _read_info(path: Path, problems: list[str]) -> dict[str, str]:
    """The ``key: value`` lines of an ``Info.cfg``."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        problems.append(f"{path}: missing or unreadable; it names the ED and ES frames")
        return {}
    pairs = (line.split(":", 1) for line in text.splitlines() if ":" in line)
    return {key.strip(): value.strip() for key, value in pairs} or {"": ""}
