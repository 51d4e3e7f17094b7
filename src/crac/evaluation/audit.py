"""An audit: pair the files, list every defect, then measure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from crac.errors import InputError, ProblemsError
from crac.evaluation.pairing import Case, find_cases
from crac.evaluation.protocol import Evaluation, Measured, Prediction, Protocol, measure
from crac.evaluation.reading import inspect, load
from crac.parallel import Workers

__all__ = ["audit"]

Track = Callable[[Iterable[Any], str, int], Iterator[Any]]


def audit(
    probabilities: Path, labels: Path, protocol: Protocol | None = None, jobs: int = 1, track: Track | None = None
) -> Evaluation:
    """Measure the probabilities in one folder against the labels in another.

    Args:
        probabilities: Folder of nnU-Net ``.npz``, of 4-D NIfTI with the classes first or last, or of one NIfTI a class.
        labels: Folder of NIfTI label maps; the file names pair them.
        protocol: What to measure; its class names must be as many as the classes. Plain numbers if not given.
        jobs: Processes; each holds one volume at a time.
        track: ``track(items, description, total)`` yields the items and shows progress.

    Raises:
        ProblemsError: Every defect of the two folders, found before anything is measured.
    """
    shown = track or (lambda items, description, total: iter(items))
    cases, problems = find_cases(probabilities, labels)
    with Workers(min(jobs, max(1, len(cases)))) as workers:
        found = list(shown(workers.map(inspect, cases), "checking", len(cases)))
        problems += [problem for one in found for problem in one.problems]
        counts = {case: one.num_classes for case, one in zip(cases, found, strict=True) if one.num_classes}
        problems += _unlike_the_rest(counts)
        if problems:
            raise ProblemsError(f"{probabilities} against {labels}", problems)
        protocol = _with_classes(protocol, next(iter(counts.values())))
        evaluation = Evaluation(protocol)
        for measured in shown(workers.map(partial(_measure, protocol), cases), "measuring", len(cases)):
            evaluation.add(measured)
    return evaluation


def _measure(protocol: Protocol, case: Case) -> Measured:
    loaded = load(case)
    scores, target = torch.from_numpy(loaded.probabilities), torch.from_numpy(loaded.labels)
    return measure(Prediction(case.name, scores, target, loaded.spacing), protocol)


def _unlike_the_rest(counts: dict[Case, int]) -> list[str]:
    if not counts:
        return []
    usual = Counter(counts.values()).most_common(1)[0][0]
    return [
        f"{case.probabilities[0]}: {number} classes, where most volumes have {usual}"
        for case, number in counts.items()
        if number != usual
    ]


def _with_classes(protocol: Protocol | None, num_classes: int) -> Protocol:
    names: Sequence[str] = [str(k) for k in range(num_classes)]
    if protocol is None:
        return Protocol(names)
    if not protocol.class_names:
        return replace(protocol, class_names=names)
    if len(protocol.class_names) != num_classes:
        raise InputError(
            f"class_names must be {num_classes} names, background first; got {len(protocol.class_names)}: "
            + ", ".join(protocol.class_names)
        )
    return protocol
