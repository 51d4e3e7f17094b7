"""What the page says in words: verdicts that follow from intervals, and explanations one click away."""

from __future__ import annotations

from collections.abc import Sequence

from crac.evaluation.crossfit import Gain
from crac.metrics.claims import known_mean, side_of_zero, too_few
from crac.metrics.ranks import Interval
from crac.report.measure import Difference, Measure
from crac.report.result import Result

MASKS = {
    "label_foreground": "voxels whose label is not background",
    "predicted_foreground": "voxels predicted as anything but background",
    "union_foreground": "voxels labelled or predicted as anything but background",
    "band": "voxels near labelled or predicted foreground",
    "all": "every voxel",
}

PLACES = {
    "label_foreground": "labelled foreground",
    "predicted_foreground": "predicted foreground",
    "union_foreground": "labelled or predicted foreground",
    "band": "near foreground",
    "all": "everywhere",
}
"""The same in two words."""

MEASURES = {"nll": "NLL", "brier": "Brier score", "ece": "ECE", "cece": "class-wise ECE", "tace": "TACE", "gap": "gap"}

REGIONS = {"inner": "inside structures", "outer": "on boundaries"}
SIDES = {1: "it is overconfident", -1: "it is underconfident", 0: "no over- or underconfidence is shown"}

LIMITS = (
    "It was measured on these patients only. Another scanner, hospital or population can give other numbers: measure "
    "again before use there.",
    "Calibration is a statement about many voxels together. It does not say how sure one may be about a single voxel "
    "or a single patient.",
    "Labels count as the truth. Where annotators disagree, on boundaries above all, part of every error is theirs.",
    "This page supports research and quality control. It is no approval for use on patients.",
)


def verdict(
    results: Sequence[Result], mask: str, differences: Sequence[Sequence[Difference]], who: str = "This model"
) -> list[str]:
    """Say what was found in two sentences.

    Args:
        results: What the page shows.
        mask: Voxels that calibration is judged on.
        differences: For each result but the first, its calibration error and its Dice minus those of the first.
        who: What a single result is called.
    """
    return _compared(results, differences) if len(results) > 1 else _alone(results[0], mask, who)


def _alone(result: Result, mask: str, who: str) -> list[str]:
    gap = Interval(*result.over_patients(f"gap[{mask}]"))
    dice = Interval(*result.over_patients("dsc"))
    known = dice.estimate == dice.estimate
    overlaps = [f"its segmentations overlap with the labels by a Dice of {dice.estimate:.3f}"] * known
    if gap.low != gap.low:
        number = result.patients_with(f"gap[{mask}]")
        return [
            f"{too_few(number)}: this page describes these patients and claims nothing beyond them.",
            f"On them, {', and '.join([f'confidence minus accuracy is {points(gap.estimate)}', *overlaps])}.",
        ]
    span = f"(95 % interval {points(gap.low, '')} to {points(gap.high)})"
    side = _side(gap)
    if side:
        word, than = ("overconfident", "above") if side > 0 else ("underconfident", "below")
        size = points(abs(gap.estimate)).removeprefix("+")
        first = f"{who} is {word}: its confidence lies {size} {than} its accuracy {span}."
    else:
        shown = points(gap.estimate)
        apart = points(result.over_patients(f"ece[{mask}]")[0]).removeprefix("+")
        first = (
            f"On the whole no over- or underconfidence is shown: confidence minus accuracy is {shown} {span}; at "
            f"single levels of confidence the two are {apart} apart, on average."
        )
    found = []
    for region, where in REGIONS.items():
        own = Interval(*result.over_patients(f"gap.{region}[{mask}]"))
        if own.low == own.low:
            found.append(f"{where} {SIDES[_side(own)]} ({points(own.estimate)})")
    second = "; ".join([", ".join(found)] * bool(found) + overlaps)
    return [first, f"{second[0].upper()}{second[1:]}."] if second else [first]


def _side(gap: Interval) -> int:
    """Which side of 0 a gap lies on; one whose interval, as shown, holds 0.0 lies on none."""
    return 0 if "0.0" in [points(value, "") for value in gap] else side_of_zero(gap)


def _compared(results: Sequence[Result], differences: Sequence[Sequence[Difference]]) -> list[str]:
    first, sentences = results[0], []
    for number, name in enumerate(("calibration error (ECE)", "Dice")):
        changes = [own[number] for own in differences]
        measure = changes[0].measure
        values = [each.by_patient(measure.key) for each in results]
        known = [{patient for patient, value in each.items() if value == value} for each in values]
        shared = set.intersection(*known)
        partly = bool(shared) and any(each != shared for each in known)
        own = [known_mean([each[patient] for patient in sorted(shared)]) for each in values]
        told = own if partly else [each.over_patients(measure.key)[0] for each in results]
        means = [measure.shown(mean) for mean in told]
        if len(changes) == 1:
            against = f"{means[1]} for {results[1].label} against {means[0]} for {first.label}"
            found = f"{against} (difference {changes[0].interval}): {changes[0].words}"
        else:
            others = zip(means[1:], results[1:], changes, strict=True)
            listed = [f"{mean} for “{result.label}” ({change.words})" for mean, result, change in others]
            found = f"{means[0]} for “{first.label}”; against it {', '.join(listed[:-1])} and {listed[-1]}"
        having = "both" if len(results) == 2 else "all"
        where = f"On the {len(shared)} patients that {having} have, the" if partly else "The"
        sentences.append(f"{where} {name} is {found}.")
    return sentences


def column(key: str) -> str:
    """Return the name of a column such as ``ece.inner[band]`` in words; others stay as they are."""
    name, _, mask = key.removesuffix("]").partition("[")
    measure, _, region = name.partition(".")
    if measure not in MEASURES or mask not in PLACES or (region and region not in REGIONS):
        return key
    return ", ".join(filter(None, [MEASURES[measure], REGIONS.get(region), PLACES[mask]]))


def points(value: float, unit: str = " percentage points") -> str:
    """Return a share as signed percentage points."""
    shown = f"{100 * value:+.1f}"
    return f"{'0.0' if float(shown) == 0 else shown}{unit}"


def shift(one: Difference) -> str:
    """Say which way a gap moved, where neither way is better."""
    return {1: "higher", -1: "lower", 0: "no significant difference"}[one.side]


def calibrated(label: str, method: str, judged: str) -> str:
    """Say what the table of a calibrator shows: of the one that was ``judged``, whether or not it was taken."""
    taken = (
        f"the calibrator is {method}. The table is its worth"
        if method == judged
        else f"{judged} was tried and not taken, the calibrator is {method}. The table is what it would have been worth"
    )
    return (
        f"{label}: {taken} on patients left out of the fit: each was measured with a calibrator fitted on the others."
    )


def gained(method: str, gain: Gain, kept: bool) -> str:
    """Say whether patients left out gain by a calibrator, and whether it was ``kept``."""
    measure = Measure(gain.measure, "", 4)
    change = Difference(measure, *gain.difference, 0)
    means = " to ".join(measure.shown(value) for value in (gain.before, gain.after))
    told = f"{method} takes the negative log-likelihood from {means} (difference {change.interval})"
    if gain.shown:
        ending = "patients left out gain by it, and it was written"
    else:
        why = "too few patients to show a gain" if change.low != change.low else "patients left out show no gain"
        ending = f"{why}; it was written all the same" if kept else f"{why}, so probabilities stay as they are"
    return f"{told}: {ending}."


TEMPERATURES = (
    "Logits are divided by the temperature of the class that is predicted and of the region. Above 1 the model becomes "
    "less sure, below 1 surer, at 1 nothing changes. They were fitted on all patients."
)


LABEL_MASK = (
    "On voxels labelled foreground a prediction of background is always wrong, so its gap there is all its confidence."
)

NUMBERS = (
    ("Calibration error (ECE)", "how far confidence is from accuracy; 0 is calibrated"),
    ("Confidence minus accuracy", "above 0 the model claims more than it keeps"),
    ("Dice", "overlap with the labels; 1 is perfect"),
)
