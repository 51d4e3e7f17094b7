"""What a calibration meter reports, and how it follows from the counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from crac.metrics.cells import Bins, Cells, equal_mass_error, equal_width_bins, quantile_error
from crac.metrics.counts import Counts, TopLabel

REGION_NAMES = ("inner", "outer")
SCALARS = ("ece", "mce", "ace", "cece", "tace", "tace_adaptive", "nll", "brier", "gap", "confidence", "accuracy")
CLASS_SCALARS = ("ece", "mce", "ace", "tace", "tace_adaptive", "counted", "nll", "brier", "gap", "predicted_gap")


@dataclass(frozen=True)
class ClassCalibration:
    """One class against the rest: its probability on every voxel of the mask, whatever was predicted there.

    Attributes:
        labelled: Voxels of the mask with this label.
        predicted: Voxels of the mask predicted as this class.
        ece: Expected calibration error of the class's probability, equal-width bins.
        mce: Largest error of a bin.
        ace: Expected calibration error, equal-mass bins.
        tace: As ``ece``, of the voxels whose probability exceeds the threshold.
        tace_adaptive: As ``ace``, of the voxels whose probability exceeds the threshold.
        counted: Share of the voxels whose probability exceeds the threshold.
        nll: Mean negative log-likelihood of the voxels with this label.
        brier: Mean squared difference of the probability from 1 on this label and 0 elsewhere.
        gap: Mean probability minus the share of voxels with this label.
        predicted_gap: Mean confidence minus accuracy of the voxels predicted as this class.
        bins: The equal-width bins of the class's probability.
    """

    labelled: int
    predicted: int
    ece: float
    mce: float
    ace: float
    tace: float
    tace_adaptive: float
    counted: float
    nll: float
    brier: float
    gap: float
    predicted_gap: float
    bins: Bins = field(repr=False)

    def scalars(self) -> dict[str, float]:
        """The numbers by name."""
        return {"labelled": self.labelled, "predicted": self.predicted} | {n: getattr(self, n) for n in CLASS_SCALARS}


@dataclass(frozen=True)
class CalibrationResult:
    """Calibration of the voxels of a mask. ``confidence`` is the probability of the predicted class.

    Attributes:
        mask: Which voxels were counted.
        count: How many.
        ece: Expected calibration error of the confidence, equal-width bins.
        mce: Largest error of a bin.
        ace: Expected calibration error of the confidence, equal-mass bins.
        cece: Class-wise ECE: mean over all classes of their one-against-the-rest ECE.
        tace: Thresholded class-wise ECE, equal-width bins, as the paper's code has it.
        tace_adaptive: Thresholded class-wise ECE, equal-mass bins, as its inventors have it.
        nll: Mean negative log-likelihood.
        brier: Mean over voxels of the squared difference of probabilities and one-hot label, summed over classes.
        gap: Mean confidence minus accuracy: positive is overconfident.
        confidence: Mean confidence.
        accuracy: Share of voxels predicted right.
        ace_exact: Whether ``ace`` comes from the sorted confidences rather than from fine cells.
        bins: The equal-width bins of the confidence.
        by_class: One entry per class, class 0 first.
        by_region: The same for the ``inner`` and the ``outer`` voxels.
    """

    mask: str
    count: int
    ece: float
    mce: float
    ace: float
    cece: float
    tace: float
    tace_adaptive: float
    nll: float
    brier: float
    gap: float
    confidence: float
    accuracy: float
    ace_exact: bool
    bins: Bins = field(repr=False)
    by_class: Sequence[ClassCalibration] = field(repr=False)
    by_region: Mapping[str, CalibrationResult] = field(repr=False, default_factory=dict)

    def scalars(self) -> dict[str, float]:
        """The numbers by name, without classes and regions."""
        return {"count": self.count} | {name: getattr(self, name) for name in SCALARS}

    def to_dict(self, class_names: Sequence[str] | None = None) -> dict[str, Any]:
        """Everything as plain data for JSON; ``class_names`` replace the class numbers."""
        names = class_names or [str(k) for k in range(len(self.by_class))]
        by_class = dict(zip(names, (one.scalars() | {"bins": _plain(one.bins)} for one in self.by_class), strict=True))
        by_region = {name: region.to_dict(class_names) for name, region in self.by_region.items()}
        plain = {"mask": self.mask} | self.scalars() | {"bins": _plain(self.bins), "by_class": by_class}
        return plain | ({"by_region": by_region} if by_region else {})


def _plain(bins: Bins) -> dict[str, list[float]]:
    return {name: values.tolist() for name, values in bins._asdict().items()}


def result(counts: Counts, cells: Cells, mask: str, tops: Sequence[TopLabel] | None) -> CalibrationResult:
    """Turn counts into statistics.

    Args:
        counts: The counts, on the CPU.
        cells: How the probabilities were cut.
        mask: Name of the mask, repeated in the result.
        tops: The predicted class voxel by voxel if it was kept; makes ``ace`` exact.
    """
    exact = tops is not None
    kept = TopLabel(*(torch.cat(parts) for parts in zip(*tops, strict=True))) if tops else None
    kept = None if kept is None else TopLabel(*(part[kept.confidence >= 0] for part in kept))
    regions = {}
    for number, name in enumerate(REGION_NAMES):
        inside = None if kept is None else TopLabel(*(part[kept.region == number] for part in kept))
        regions[name] = _statistics([part[:, number] for part in counts[:4]], cells, mask, exact, inside)
    return _statistics([part.sum(1) for part in counts[:4]], cells, mask, exact, kept, regions)


def _over_classes(values: Tensor, number: int) -> float:
    """Mean over all classes; one without a probability above the threshold counts as 0, as in the paper's code."""
    return float(values.nan_to_num(nan=0.0).mean()) if number else float("nan")


def _statistics(
    parts: Sequence[Tensor],
    cells: Cells,
    mask: str,
    exact: bool,
    kept: TopLabel | None,
    regions: Mapping[str, CalibrationResult] | None = None,
) -> CalibrationResult:
    """Statistics of the first four parts of :class:`Counts` without their regions."""
    count, confidence, squares, likelihood_loss = parts
    number = int(count[0].sum())
    top_count, top_confidence = count[:, 1], confidence[:, 1]  # (K, hit, cells)
    hits, sums = count.sum(1)[:, 1], confidence.sum(1)
    samples, probability = count.sum((1, 2)), sums.sum(1)  # (K, cells)
    above = cells.above

    one_rest = equal_width_bins(samples, probability, hits, cells)
    thresholded = equal_width_bins(samples * above, probability * above, hits * above, cells).expected_error
    labelled = hits.sum(-1)
    class_brier = (squares - 2 * sums[:, 1].sum(-1) + labelled) / number
    predicted = top_count.sum((1, 2))
    columns = {
        "labelled": labelled,
        "predicted": predicted,
        "ece": one_rest.expected_error,
        "mce": one_rest.maximum_error,
        "ace": equal_mass_error(samples, probability, hits, cells.bins),
        "tace": thresholded,
        "tace_adaptive": equal_mass_error(samples * above, probability * above, hits * above, cells.bins),
        "counted": (samples * above).sum(-1) / number,
        "nll": likelihood_loss / labelled,
        "brier": class_brier,
        "gap": (probability.sum(-1) - labelled) / number,
        "predicted_gap": (top_confidence.sum((1, 2)) - top_count[:, 1].sum(-1)) / predicted,
    }
    lists = {name: values.tolist() for name, values in columns.items()}
    by_class = tuple(
        ClassCalibration(
            **{name: values[k] for name, values in lists.items()}, bins=Bins(*(part[k] for part in one_rest))
        )
        for k in range(len(count))
    )

    top = top_count.sum((0, 1)), top_confidence.sum((0, 1)), top_count[:, 1].sum(0)
    bins = equal_width_bins(*top, cells)
    if exact:
        ace = quantile_error(kept.confidence, kept.correct, cells.bins) if kept is not None else torch.tensor(torch.nan)
    else:
        ace = equal_mass_error(*top, cells.bins)
    mean_confidence, accuracy = float(top[1].sum()) / max(number, 1), float(top[2].sum()) / max(number, 1)
    if number == 0:
        mean_confidence = accuracy = float("nan")
    return CalibrationResult(
        mask=mask,
        count=number,
        ece=float(bins.expected_error),
        mce=float(bins.maximum_error),
        ace=float(ace),
        cece=float(columns["ece"].mean()),
        tace=_over_classes(thresholded, number),
        tace_adaptive=_over_classes(columns["tace_adaptive"], number),
        nll=float(likelihood_loss.sum() / number),
        brier=float(class_brier.sum()),
        gap=mean_confidence - accuracy,
        confidence=mean_confidence,
        accuracy=accuracy,
        ace_exact=exact,
        bins=bins,
        by_class=by_class,
        by_region=regions or {},
    )
