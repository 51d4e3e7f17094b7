"""Guarantees fitted on held-out cases of a model."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from crac.errors import one_of
from crac.evaluation.audit import file_cases
from crac.evaluation.case import CaseSource
from crac.evaluation.run import RunCases
from crac.guarantees import Case, Guarantees
from crac.guarantees.units import check_alpha
from crac.models.guarantees import GUARANTEES, tied_to
from crac.models.model import Model
from crac.progress import Track, silent

PARTS = ("validation", "test")


def guarantee_run(
    run: Path,
    model: Model,
    alpha: float = 0.1,
    split: str = "validation",
    data: Path | None = None,
    *,
    track: Track = silent,
    **options: Any,
) -> Guarantees:
    """Fit guarantees on held-out cases of a run, on the grid of their images, and write them into the run.

    Args:
        run: Folder of the run.
        model: Loaded from it, with the calibrator that is to be used.
        alpha: The risk that is accepted.
        split: ``validation``, or ``test`` for patients whom nothing has seen.
        data: Store, if it is no longer where the run found it.
        track: Shows progress.
        **options: Of :class:`crac.Guarantees`.
    """
    if split not in PARTS:
        raise one_of("split", split, PARTS)
    check_alpha(alpha)
    cases = RunCases.of(run, model, split, data, "native")
    found = Guarantees(len(model.card.class_names), alpha, class_names=model.card.class_names, **options)
    found.fit(_loaded(cases, track))
    found.fitted |= {"split": split, "model": tied_to(model)}
    found.save(run / GUARANTEES)
    return found


def guarantee_files(
    probabilities: Path,
    labels: Path,
    alpha: float = 0.1,
    patient: str | None = None,
    *,
    jobs: int = 1,
    track: Track = silent,
    **options: Any,
) -> Guarantees:
    """Fit guarantees on the probabilities that any model gave for cases it was not trained on.

    Args:
        probabilities: Folder, see :func:`crac.evaluation.audit`.
        labels: Folder of NIfTI label maps.
        alpha: The risk that is accepted.
        patient: Regular expression for the part of a file's name that says whose it is; by default each volume is of
            another patient.
        jobs: Processes that check the files.
        track: Shows progress.
        **options: Of :class:`crac.Guarantees`.
    """
    check_alpha(alpha)
    cases, num_classes = file_cases(probabilities, labels, patient, jobs=jobs, track=track)
    return Guarantees(num_classes, alpha, **options).fit(_loaded(cases, track))


def _loaded(cases: CaseSource, track: Track) -> Iterator[Case]:
    for name in track(cases.names, "fitting", len(cases.names)):
        yield cases.load(name).for_guarantees
