"""Which cases a person should look at, told from their own probabilities."""

import math
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crac.errors import InputError, check_number, one_of
from crac.functional.arrays import Array
from crac.guarantees.base import Guarantee
from crac.guarantees.case import LabelledVolume, check_volume
from crac.guarantees.counts import Doubts
from crac.guarantees.units import Unit, least_bound, too_few

Score = Literal["expected_dice", "boundary_entropy", "volume_uncertainty"]
WORDS = {
    "expected_dice": "the Dice it expects to miss",
    "boundary_entropy": "the entropy at its boundaries",
    "volume_uncertainty": "the undecided share of its volume",
}
"""A doubt in words."""


class Look(NamedTuple):
    """Whether a person should look at a case, how doubtful it is, and why in words; the reason is empty if not."""

    flagged: bool
    doubt: float
    reason: str


class RiskCoverage(NamedTuple):
    """The mean loss of the cases kept, when the most doubtful ones go to a person.

    Attributes:
        coverage: Share of cases that is kept, growing to 1.
        risk: Their mean loss.
        area: Mean of ``risk``: what a good score makes small.
        best: Area of a score that knows the losses.
        chance: Area of a score that knows nothing: the mean loss.
    """

    coverage: NDArray[np.float64]
    risk: NDArray[np.float64]
    area: float
    best: float
    chance: float


class Referral(Guarantee):
    """Flags doubtful cases, so that few bad segmentations pass without a flag.

    A segmentation is bad if its Dice, the mean over the foreground classes that the label or the prediction has, is
    below ``acceptable``. The threshold is the highest one such that the share of patients with a bad segmentation that
    is *not* flagged stays below ``alpha``, on average, by conformal risk control. A case more doubtful than every
    calibration case is flagged too, for it may be unlike them.

    Args:
        num_classes: ``K``, the background included.
        alpha: The accepted risk that a new patient's segmentation is bad and not flagged.
        score: What tells doubtful cases: one of the fields of :class:`~crac.guarantees.counts.Doubts`.
        acceptable: Dice below which a segmentation is bad.
        unit: As for :class:`~crac.guarantees.base.Guarantee`.

    Attributes:
        threshold: Doubt from which on a case is flagged; infinite if bad segmentations are rare enough without a flag,
            NaN if nothing can be promised.
        largest: Largest doubt of a calibration case.
        patients: How many patients it was fitted on.
        reason: Why nothing can be promised; None if something is.
    """

    reason: str | None

    def __init__(
        self,
        num_classes: int,
        alpha: float = 0.1,
        *,
        score: Score = "expected_dice",
        acceptable: float = 0.7,
        unit: Unit = "mean",
    ) -> None:
        if score not in get_args(Score):
            raise one_of("score", score, get_args(Score))
        check_number("acceptable", acceptable, least=0, most=1)
        self.score, self.acceptable = score, float(acceptable)
        super().__init__(num_classes, alpha, unit=unit)

    @property
    def entropy(self) -> bool:
        """Whether the score needs the entropy of voxels."""
        return self.score == "boundary_entropy"

    def predict(self, probabilities: Array) -> Look:
        """Whether a person should look at a case, and why."""
        volume = check_volume(probabilities, [1.0] * (len(probabilities.shape) - 1), self.num_classes)
        return self.judge(volume.counted(self.entropy).doubts())

    def judge(self, found: Doubts) -> Look:
        """The same for a case whose doubts are known."""
        doubt = float(getattr(found, self.score))
        what = f"{WORDS[self.score]}, {doubt:.3f},"
        if doubt > self.largest:
            count = f"{self.patients} calibration patient{'s' * (self.patients > 1)}"
            return Look(True, doubt, f"{what} is larger than in any of the {count}: the image may be unlike theirs")
        if doubt >= self.threshold:
            reason = f"reaches {self.threshold:.3f}, from where on Dice below {self.acceptable:g} must be expected"
            return Look(True, doubt, f"{what} {reason}")
        return Look(False, doubt, "")

    def curve(self) -> RiskCoverage:
        """What referring the most doubtful calibration volumes is worth; the loss is 1 minus Dice."""
        volumes = [pair for own in self._volumes.values() for pair in own]
        return risk_coverage([doubt for doubt, _ in volumes], [1 - quality for _, quality in volumes])

    def state(self) -> dict[str, Any]:
        """What was fitted, as plain data."""
        names = ("score", "acceptable", "threshold", "largest", "patients", "reason")
        return {name: getattr(self, name) for name in names}

    def load_state(self, state: dict[str, Any]) -> None:
        """Take over what :meth:`state` gave; a threshold of None is NaN with a reason, else infinite."""
        self.reason = None if state["reason"] is None else str(state["reason"])
        missing = math.inf if self.reason is None else math.nan
        self.threshold = missing if state["threshold"] is None else float(state["threshold"])
        self.largest, self.patients = float(state["largest"]), int(state["patients"])

    def _observe(self, case: LabelledVolume) -> None:
        own = case.volume.counted(entropy=True) if self.entropy else case.own
        doubt = float(getattr(own.doubts(), self.score))
        self._volumes.setdefault(case.patient, []).append((doubt, case.counts.dice))

    def _solve(self) -> None:
        self.patients = len(self._volumes)
        self.reason = too_few(self.patients, self.alpha)
        self.largest = max(doubt for own in self._volumes.values() for doubt, _ in own)
        # A bad volume passes if its doubt is below the threshold, that is, minus its doubt above minus the threshold.
        passing = {
            patient: [-doubt if quality < self.acceptable else -math.inf for doubt, quality in own]
            for patient, own in self._volumes.items()
        }
        self.threshold = -least_bound(passing, self.alpha, self.unit)

    def _reset(self) -> None:
        self.threshold, self.largest, self.patients = math.nan, math.inf, 0
        self.reason = None
        self._volumes: dict[str, list[tuple[float, float]]] = {}


def risk_coverage(doubt: ArrayLike, loss: ArrayLike) -> RiskCoverage:
    """Sort cases by their doubt and follow the mean loss of the surest ones; equal doubts are kept together.

    Args:
        doubt: Doubt about each case.
        loss: Loss of each case.
    """
    first, second = np.asarray(doubt, dtype=np.float64), np.asarray(loss, dtype=np.float64)
    if first.ndim != 1 or first.shape != second.shape or not first.size:
        shapes = f"{first.shape} and {second.shape}"
        raise InputError(f"doubt and loss must hold one number for each of at least one case; got shapes {shapes}")
    number = np.arange(1, len(first) + 1)
    order = np.argsort(first, kind="stable")
    # Cases with the same doubt cannot be told apart: each counts with their mean.
    _, group = np.unique(first[order], return_inverse=True)
    kept = (np.bincount(group, second[order]) / np.bincount(group))[group]
    risk = np.cumsum(kept) / number
    best = np.cumsum(np.sort(second)) / number
    return RiskCoverage(number / len(first), risk, float(risk.mean()), float(best.mean()), float(second.mean()))
