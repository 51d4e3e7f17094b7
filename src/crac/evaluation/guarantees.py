"""Guarantees fitted on held-out cases of a model."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from crac.calibration import Calibrator, build_calibrator
from crac.errors import one_of
from crac.evaluation.audit import file_cases
from crac.evaluation.case import CaseSource, RememberedCases
from crac.evaluation.crossfit import left_out
from crac.evaluation.folds import FoldCases
from crac.evaluation.nnunet import Orientation
from crac.evaluation.protocol import Grid
from crac.evaluation.run import RunCases
from crac.guarantees import Case, Guarantees
from crac.guarantees.units import check_alpha
from crac.guarantees.words import CROSSED, OUT_OF_FOLD
from crac.models.ensemble import Ensemble
from crac.models.folds import Folds
from crac.models.guarantees import GUARANTEES, tied_to
from crac.models.model import Model
from crac.progress import Track, silent

PARTS = ("validation", "test")
FOLDS = 5
"""Groups of patients; each is calibrated by what was fitted on the others, if they fitted the calibrator."""

Calibrated = Callable[[Calibrator | None, Grid], RunCases | FoldCases]
"""Makes the cases of a model with a calibrator, on a grid."""


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

    The validation part has fitted the run's calibrator, if there is one; each patient of it is then calibrated by
    another one, fitted on the other patients.

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

    def cases(calibrator: Calibrator | None, grid: Grid) -> RunCases:
        return RunCases.of(run, replace(model, calibrator=calibrator), split, data, grid)

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

    What is new to all networks is predicted by their mean, for which these guarantees are an estimate and no proof. If
    the patients have fitted a calibrator, each is calibrated by another one, fitted on the other patients.

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

    def cases(calibrator: Calibrator | None, grid: Grid) -> FoldCases:
        def load(run: Path) -> Model:
            return members[run] if ensemble.calibrator is None else replace(members[run], calibrator=calibrator)

        return FoldCases(folds, load, data, grid)

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
        orientation: Orientation of nnU-Net's ``.npz`` whose ``.pkl`` are missing, see :func:`crac.evaluation.audit`.
        ignore_index: Label of voxels that nobody has labelled, if there is one.
        jobs: Processes that check the files.
        track: Shows progress.
        **options: Of :class:`crac.Guarantees`.
    """
    check_alpha(alpha)
    cases, num_classes = file_cases(
        probabilities, labels, patient, orientation=orientation, ignore_index=ignore_index, jobs=jobs, track=track
    )
    found = Guarantees(num_classes, alpha, **options).fit(_loaded(cases, track))
    found.fitted["names"] = list(cases.names)
    return found


def _fitted(
    folder: Path,
    model: Model | Ensemble,
    cases: Calibrated,
    split: str,
    alpha: float,
    track: Track,
    options: dict[str, Any],
) -> Guarantees:
    found = Guarantees(len(model.card.class_names), alpha, class_names=model.card.class_names, **options)
    given, calibrator = cases(model.calibrator, "native"), model.calibrator
    crossed = calibrator is not None and split != "test" and _can_cross(calibrator, given)
    if calibrator is not None and crossed:
        found.fit(_crossed(calibrator, cases, track))
    else:
        found.fit(_loaded(given, track))
    found.fitted |= {"split": split, "model": tied_to(model), **({CROSSED: FOLDS} if crossed else {})}
    found.save(folder / GUARANTEES)
    return found


def _can_cross(calibrator: Calibrator, cases: RunCases | FoldCases) -> bool:
    """Whether it is known how the calibrator was fitted, and there are patients to leave out."""
    patients = {cases.store.cases[name].patient for name in cases.names}
    return calibrator.name != "identity" and "mask" in calibrator.fitted and len(patients) > 1


def _crossed(calibrator: Calibrator, cases: Calibrated, track: Track) -> Iterator[Case]:
    """Every case with probabilities that its patient has had no part in calibrating."""
    plain = cases(None, "prepared")
    settings = {"radii": calibrator.radii, "regions": calibrator.regions}
    make = partial(build_calibrator, calibrator.name, calibrator.num_classes, **settings)
    mask, ignored = calibrator.fitted["mask"], plain.store.ignore_index
    device = calibrator.weights.device
    for fitted, names in left_out(RememberedCases(plain), lambda: make().to(device), FOLDS, track, mask, ignored):
        source = cases(fitted, "native")
        for name in names:
            yield source.load(name).for_guarantees


def _loaded(cases: CaseSource, track: Track) -> Iterator[Case]:
    for name in track(cases.names, "fitting", len(cases.names)):
        yield cases.load(name).for_guarantees
