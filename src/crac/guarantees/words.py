"""What is promised, and what is not, in sentences."""

import math
from collections.abc import Iterator

from crac.guarantees.bundle import Guarantees

LIMITS = (
    "These promises hold on average over new patients from the same population, scanner and protocol as the "
    "calibration patients, and over draws of these; they say nothing about one patient, or another hospital."
)


OUT_OF_FOLD = "out-of-fold"
"""What ``Guarantees.fitted["split"]`` says where each network of a cross-validation predicted those it had not seen."""

ESTIMATE = (
    "They were fitted on single networks, each on the patients it had not seen; the mean of the networks is another "
    "predictor, for which they are an estimate and not a proof."
)


CROSSED = "crossed"
"""In ``Guarantees.fitted``, where the patients also fitted the calibrator: into how many groups they were divided."""

LEFT_OUT = (
    "The same patients fitted the calibrator, so each was calibrated by another one here, fitted on the others: that "
    "kept the promises where it was measured, and is no proof."
)


def limits(found: Guarantees) -> str:
    """What the promises do not say."""
    sentences = [LIMITS]
    sentences += [ESTIMATE] * (found.fitted.get("split") == OUT_OF_FOLD)
    if CROSSED in found.fitted:
        sentences += [LEFT_OUT]
        if found.fitted.get("split") != OUT_OF_FOLD:
            sentences += ["Patients whom nothing has seen give one: --split test."]
    return " ".join(sentences)


def promises(found: Guarantees) -> list[str]:
    """One sentence a promise, class by class, and one for each that cannot be made."""
    sentences = [
        f"{found.class_names[number]}: {sentence}"
        for number in range(1, found.num_classes)
        for sentence in _of_class(found, number)
    ]
    return [*sentences, f"flags: {_referral(found)}"]


def _of_class(found: Guarantees, number: int) -> Iterator[str]:
    level = f"{100 * (1 - found.alpha):g} %"

    def patients(part: str) -> str:
        return f"({int(getattr(found, part).patients[number])} patients)"

    if reason := found.possible.reasons.get(number):
        yield f"no set of voxels is promised to hold it: {reason}"
    elif threshold := float(found.possible.thresholds[number]):
        yield f"on average, {level} of it has a probability of at least {threshold:.4g} {patients('possible')}"
    else:
        yield f"only the whole image is sure to hold {level} of it {patients('possible')}"
    if reason := found.certain.reasons.get(number):
        yield f"no core is promised: {reason}"
    else:
        threshold = float(found.certain.thresholds[number])
        yield f"on average, {level} of the voxels of at least {threshold:.4g} are right {patients('certain')}"
    if reason := found.margin.reasons.get(number):
        yield f"no margin is promised: {reason}"
    else:
        for distance, moved, end in (
            (float(found.margin.millimetres[number]), "grown", "holds all of it"),
            (float(found.margin.inwards[number]), "shrunk", "lies within it"),
        ):
            by = f"the contour {moved} by {distance:.3g} mm" if math.isfinite(distance) else f"no {moved} contour"
            # Inwards all patients count, also those without the class.
            count = patients("margin") if moved == "grown" else f"({len(found.patients)} patients)"
            yield f"{by} {end} in {level} of patients {count}"
    if reason := found.volume.reasons.get(number):
        yield f"its volume has no bounded interval: {reason}"
    else:
        yield f"the interval of its volume holds the true one in {level} of patients {patients('volume')}"


def _referral(found: Guarantees) -> str:
    referral = found.referral
    bad, unlike = f"a Dice below {referral.acceptable:g}", "only cases more doubtful than all of these are flagged"
    if referral.reason is not None:
        return f"{referral.reason}; {unlike}"
    if math.isinf(referral.threshold):
        return f"{bad} was rare enough without them ({referral.patients} patients); {unlike}"
    return f"at most {100 * found.alpha:g} % of patients have {bad} and no flag ({referral.patients} patients)"
