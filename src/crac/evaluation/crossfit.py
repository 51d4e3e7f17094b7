"""What calibration is worth: fitted on some patients, measured on the others.

Every patient is measured once, with a calibrator that never saw them, and compared with the model as it is.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from torch import Tensor

from crac.calibration import Calibrator, log_probabilities
from crac.calibration.volume import as_batch, calibrate_volume
from crac.errors import InputError, check_number
from crac.evaluation.case import Case, CaseSource
from crac.evaluation.measure import Evaluation, Shapes, measure
from crac.evaluation.protocol import Protocol
from crac.metrics.claims import patient_difference, side_of_zero
from crac.metrics.masks import Mask
from crac.metrics.ranks import Interval
from crac.progress import Track, silent

MEASURES = ("nll", "brier", "ece", "cece", "ece.inner", "ece.outer")
"""Measures the gain is reported in, on every mask of the protocol; the first one decides."""
JUDGED: tuple[Mask, ...] = ("band", "all", "label_foreground")
"""Masks of a protocol that judges calibrators: what is seen of a contour, what adds up to volumes, and the paper's."""


class Gain(NamedTuple):
    """A measure before and after calibration, means over patients, and the difference with its 95 % interval."""

    measure: str
    before: float
    after: float
    difference: Interval

    @property
    def shown(self) -> bool:
        """Whether the interval shows a gain: all of it lies below 0; too few patients have none, and show none."""
        return side_of_zero(self.difference) < 0


class CrossFit(NamedTuple):
    """The patients as the model is, and with calibrators that were fitted on others."""

    before: Evaluation
    after: Evaluation

    def gains(self, decisive: Mask | None = None) -> list[Gain]:
        """Every measure and mask of which at least two patients have a value, patients as the units.

        Args:
            decisive: The mask that decides, and comes first; by default the first one of the protocol.

        Raises:
            InputError: The measure that decides is not among them.
        """
        masks = sorted(self.before.protocol.masks, key=lambda mask: mask != decisive)
        columns = [f"{name}[{mask}]" for mask in masks for name in MEASURES]
        gains = []
        for column in columns:
            first, second = (
                np.array([mean for _, mean in sorted(one.by_patient(column).items())])
                for one in (self.before, self.after)
            )
            known = np.isfinite(first) & np.isfinite(second)
            if known.sum() >= 2:
                means = float(first[known].mean()), float(second[known].mean())
                gains.append(Gain(column, *means, patient_difference(second[known], first[known])))
            elif column == columns[0]:
                raise InputError(
                    f"calibration is judged on patients left out, which needs at least 2 with voxels of the mask "
                    f"{masks[0]}; got {known.sum()}"
                )
        return gains


def fit_batches(
    cases: CaseSource, names: Sequence[str], calibrator: Calibrator
) -> Callable[[], Iterator[tuple[Tensor, Tensor]]]:
    """The batches a calibrator is fitted on: one volume each, loaded anew in every pass."""

    def batches() -> Iterator[tuple[Tensor, Tensor]]:
        for name in names:
            case = cases.load(name)
            logits, labels = as_batch(calibrator, _logits(case), case.axis), case.labels
            yield logits, as_batch(calibrator, labels, case.axis, channels=0)

    return batches


def cross_fit(
    cases: CaseSource,
    make: Callable[[], Calibrator],
    protocol: Protocol,
    folds: int = 5,
    track: Track = silent,
    mask: Mask | None = None,
) -> CrossFit:
    """Measure cases before and after calibration by calibrators that never saw their patients.

    Args:
        cases: Held-out cases of the model, with logits or probabilities as it gives them.
        make: Makes a fresh calibrator.
        protocol: How to measure.
        folds: Groups the patients are divided into, at most as many as there are patients.
        track: Shows progress.
        mask: Voxels that calibrators are fitted on, see :meth:`crac.calibration.Calibrator.fit`.
    """
    before, after = Evaluation(protocol), Evaluation(protocol)
    for calibrator, names in left_out(cases, make, folds, track, mask, protocol.ignore_index):
        for name in names:
            case, shapes = cases.load(name), Shapes()
            before.add(measure(case, protocol, shapes))
            after.add(measure(calibrated_case(calibrator, case), protocol, shapes))
    return CrossFit(before, after)


def left_out(
    cases: CaseSource,
    make: Callable[[], Calibrator],
    folds: int = 5,
    track: Track = silent,
    mask: Mask | None = None,
    ignore_index: int | None = None,
) -> Iterator[tuple[Calibrator, list[str]]]:
    """Yield a calibrator for each group of patients, fitted on all the others, and the names of the group's cases.

    Arguments are those of :func:`cross_fit`; voxels labelled ``ignore_index`` do not count.
    """
    check_number("folds", folds, least=2, whole=True)
    patients = {name: cases.load(name).patient for name in cases.names}
    units = sorted(set(patients.values()))
    if len(units) < 2:
        raise InputError(f"calibration is judged on patients left out, which needs at least 2; got {len(units)}")
    for fold in track(range(min(folds, len(units))), "folds", min(folds, len(units))):
        held = set(units[fold::folds])
        calibrator = make()
        others = [name for name in cases.names if patients[name] not in held]
        calibrator.fit(fit_batches(cases, others, calibrator), mask=mask, ignore_index=ignore_index, weight="volume")
        yield calibrator, [name for name in cases.names if patients[name] in held]


def calibrated_case(calibrator: Calibrator, case: Case) -> Case:
    """The case with calibrated scores: logarithms of probabilities in the place of logits, else probabilities.

    Probabilities that round to 0 would hide how wrong they are, and logits do not.
    """
    logits = case.from_logits
    scores = calibrate_volume(calibrator, case.scores, case.axis, from_probabilities=not logits, logarithm=logits)
    return case._replace(scores=scores.float())


def _logits(case: Case) -> Tensor:
    return case.scores if case.from_logits else log_probabilities(case.scores)
