"""Guarantees fitted on held-out cases of a model."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from crac.errors import one_of
from crac.evaluation.audit import file_cases
from crac.evaluation.case import CaseSource
from crac.evaluation.folds import FoldCases
from crac.evaluation.nnunet import Orientation
from crac.evaluation.run import RunCases
from crac.guarantees import Case, Guarantees
from crac.guarantees.units import check_alpha
from crac.guarantees.words import OUT_OF_FOLD
from crac.models.ensemble import Ensemble
from crac.models.folds import Folds
from crac.models.guarantees import GUARANTEES, tied_to
from crac.models.model import Model
from crac.models.predictor import Predictor
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
    return _fitted(run, model, cases, split, alpha, track, options)


def guarantee_folds(
    folds: Path,
    ensemble: Ensemble,
    alpha: float = 0.1,
    data: Path | None = None,
    *,
    track: Track = silent,
    **options: Any,
) -> Guarantees:
    """Fit guarantees on every patient of a cross-validation, predicted by the network that did not see them.

    What is new to all networks is predicted by their mean, for which these guarantees are an estimate and no proof.

    Args:
        folds: Folder of the cross-validation.
        ensemble: Loaded from it, with the calibrators that are to be used.
        alpha: The risk that is accepted.
        data: Store, if it is no longer where the runs found it.
        track: Shows progress.
        **options: Of :class:`crac.Guarantees`.
    """
    check_alpha(alpha)
    members = dict(zip((run.path for run in Folds(folds).runs()), ensemble.members, strict=True))

    def load(run: Path) -> Model:
        own = members[run]
        return own if ensemble.calibrator is None else replace(own, calibrator=ensemble.calibrator)

    cases = FoldCases(folds, load, data, "native")
    return _fitted(folds, ensemble, cases, OUT_OF_FOLD, alpha, track, options)


def guarantee_files(
    probabilities: Path,
    labels: Path,
    alpha: float = 0.1,
    patient: str | None = None,
    *,
    orientation: Orientation | None = None,
    ignore_index: int | None = None,
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
        orientation: Of nnU-Net's ``.npz`` whose ``.pkl`` are missing, see :func:`crac.evaluation.audit`.
        ignore_index: Label of voxels that nobody has labelled, if there is one.
        jobs: Processes that check the files.
        track: Shows progress.
        **options: Of :class:`crac.Guarantees`.
    """
    check_alpha(alpha)
    cases, num_classes = file_cases(
        probabilities, labels, patient, orientation=orientation, ignore_index=ignore_index, jobs=jobs, track=track
    )
    return Guarantees(num_classes, alpha, **options).fit(_loaded(cases, track))


def _fitted(
    folder: Path, model: Predictor, cases: CaseSource, split: str, alpha: float, track: Track, options: dict[str, Any]
) -> Guarantees:
    found = Guarantees(len(model.card.class_names), alpha, class_names=model.card.class_names, **options)
    found.fit(_loaded(cases, track))
    found.fitted |= {"split": split, "model": tied_to(model)}
    found.save(folder / GUARANTEES)
    return found


def _loaded(cases: CaseSource, track: Track) -> Iterator[Case]:
    for name in track(cases.names, "fitting", len(cases.names)):
        yield cases.load(name).for_guarantees
