"""What came of guarantees on cases with labels that they were not fitted on."""

import math
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

from crac.errors import InputError
from crac.evaluation.case import CaseSource
from crac.guarantees import Guarantees, risk_coverage
from crac.guarantees.case import UnlabelledError, check_case
from crac.guarantees.margin import needed
from crac.guarantees.units import Unit
from crac.metrics.claims import LEAST_PATIENTS, by_patient, known_mean, patient_mean
from crac.parallel import Workers
from crac.progress import Track, silent

Row = dict[str, Any]


class Realised(NamedTuple):
    """A row a volume and foreground class, and all together as plain data."""

    rows: list[Row]
    summary: dict[str, Any]


def realise(
    found: Guarantees, cases: CaseSource, *, jobs: int = 1, ray: str | None = None, track: Track = silent
) -> Realised:
    """Measure what guarantees promised on cases with labels, on the grid of their images.

    Args:
        found: The guarantees.
        cases: Cases of the same model.
        jobs: Processes; cases that come from a GPU are measured by this one.
        ray: Ray cluster, see :func:`crac.evaluation.evaluate`.
        track: Shows progress.

    Raises:
        InputError: The guarantees were fitted on patients of these cases, which would prove nothing.
    """
    with Workers(1 if cases.on_gpu else min(jobs, len(cases.names)), ray) as workers:
        measured = workers.map(partial(_measured, found, cases), cases.names)
        rows = [row for own in track(measured, "guarantees", len(cases.names)) for row in own]
    check_patients(found, (row["patient"] for row in rows))
    return Realised(rows, _summary(found, rows))


def check_patients(found: Guarantees, patients: Iterable[str], volumes: Iterable[str] = ()) -> None:
    """Refuse patients, and volumes by their names, whom guarantees were fitted on: they would prove nothing."""
    again = set(volumes).intersection(found.fitted.get("names", ()))
    if known := sorted(again.union(set(patients).intersection(found.patients))):
        more = f" and {len(known) - 3} more" if len(known) > 3 else ""
        raise InputError(
            f"guarantees cannot be measured on the patients they were fitted on: {', '.join(known[:3])}{more}"
        )


def _measured(found: Guarantees, cases: CaseSource, name: str) -> list[Row]:
    """One row a foreground class; none of a case that nobody has labelled."""
    given = cases.load(name)
    try:
        case = check_case(given.for_guarantees, found.num_classes, given.name)
    except UnlabelledError:
        return []
    voxel, known = case.volume.voxel, case.ignored is None
    own = case.volume.counted(entropy=True) if found.referral.entropy else case.own
    distances, volumes = needed(case), found.volume.interval(own.sums, voxel)
    look, dice = found.referral.judge(own.doubts()), case.counts.dice
    pairs, counts = case.counts.pairs, {"label": case.counts.voxels}
    counts |= {"argmax": pairs.sum(1), "argmax_hits": pairs.diagonal()}
    for kind, control in (("possible", found.possible), ("certain", found.certain)):
        counts[kind], counts[f"{kind}_hits"] = control.set_sizes(case.counts)
    rows = []
    for number in range(1, found.num_classes):
        count = {what: int(values[number]) for what, values in counts.items()}
        out, deep = distances[number - 1]
        estimate, low, high = volumes[number].tolist()
        true = count["label"] * voxel if known else math.nan
        missed = not low - 1e-9 <= true <= high + 1e-9
        rows.append({
            "volume": name,
            "patient": case.patient,
            "class": found.class_names[number],
            "true_ml": true,
            "estimate_ml": estimate,
            "low_ml": low,
            "high_ml": high,
            "argmax_ml": count["argmax"] * voxel,
            "interval_misses": float(missed) if known and math.isfinite(high) else math.nan,
            "possible_ml": count["possible"] * voxel,
            "possible_misses": _share(count["label"] - count["possible_hits"], count["label"]),
            "argmax_misses": _share(count["label"] - count["argmax_hits"], count["label"]),
            "certain_ml": count["certain"] * voxel,
            "certain_wrong": _share(count["certain"] - count["certain_hits"], count["certain"], empty=0.0),
            "argmax_wrong": _share(count["argmax"] - count["argmax_hits"], count["argmax"], empty=0.0),
            "needs_mm": math.nan if out is None else out,
            "margin_misses": math.nan if out is None else _beyond(out, float(found.margin.millimetres[number])),
            "needs_mm_inwards": deep,
            "core_misses": _beyond(deep, float(found.margin.inwards[number])),
            "doubt": look.doubt,
            "flagged": float(look.flagged),
            "dice": dice,
        })  # fmt: skip
    return rows


def _share(part: int, whole: int, empty: float = math.nan) -> float:
    return part / whole if whole else empty


def _beyond(needed_: float, margin: float) -> float:
    """Whether a margin falls short; NaN if none is promised."""
    return margin if math.isnan(margin) else float(needed_ > margin * (1 + 1e-9))


def _summary(found: Guarantees, rows: Sequence[Row]) -> dict[str, Any]:
    first = [row for row in rows if row["class"] == found.class_names[1]]
    classes = {
        name: _class_summary(found, number, [row for row in rows if row["class"] == name])
        for number, name in enumerate(found.class_names)
        if number
    }
    return {
        "alpha": found.alpha,
        "unit": found.unit,
        "calibration_patients": len(found.patients),
        "patients": len({row["patient"] for row in rows}),
        "volumes": len(first),
        "by_class": classes,
        "referral": _referral_summary(found, first),
    }


def _class_summary(found: Guarantees, number: int, rows: Sequence[Row]) -> dict[str, Any]:
    unit = found.unit
    width, true = (
        known_mean([row["high_ml"] - row["low_ml"] for row in rows]),
        known_mean([row["true_ml"] for row in rows]),
    )
    errors = {
        f"{name}_error_ml": known_mean([abs(row[f"{name}_ml"] - row["true_ml"]) for row in rows])
        for name in ("estimate", "argmax")
    }
    return {
        "possible": _risk(rows, "possible_misses", unit, found.possible.reasons.get(number))
        | {"threshold": float(found.possible.thresholds[number])}
        | _size(rows, "possible")
        | {"argmax": known_mean(_known(rows, "argmax_misses", unit))},
        "certain": _risk(rows, "certain_wrong", unit, found.certain.reasons.get(number))
        | {"threshold": float(found.certain.thresholds[number])}
        | _size(rows, "certain")
        | {"argmax": known_mean(_known(rows, "argmax_wrong", unit))},
        "margin": _coverage(rows, "margin_misses", unit, found.margin.reasons.get(number))
        | {"millimetres": float(found.margin.millimetres[number])},
        "core": _coverage(rows, "core_misses", unit, found.margin.reasons.get(number))
        | {"millimetres": float(found.margin.inwards[number])},
        "volume": _coverage(rows, "interval_misses", unit, found.volume.reasons.get(number))
        | {"width_ml": width, "width_share": _ratio(width, true)}
        | errors,
    }


def _referral_summary(found: Guarantees, rows: Sequence[Row]) -> dict[str, Any]:
    referral = found.referral
    bad = [row | {"bad": float(row["dice"] < referral.acceptable)} for row in rows]
    bad = [row | {"passed": row["bad"] * (1 - row["flagged"])} for row in bad]
    curve = risk_coverage([row["doubt"] for row in rows], [1 - row["dice"] for row in rows])
    return {
        "score": referral.score,
        "acceptable": referral.acceptable,
        "reason": referral.reason,
        "flagged": known_mean(_known(bad, "flagged", found.unit)),
        "bad": known_mean(_known(bad, "bad", found.unit)),
        "bad_and_not_flagged": 1 - _coverage(bad, "passed", found.unit)["realised"],
        "area": curve.area,
        "area_best": curve.best,
        "area_chance": curve.chance,
        "coverage": curve.coverage.tolist(),
        "risk": curve.risk.tolist(),
    }


def _known(rows: Sequence[Row], column: str, unit: Unit) -> list[float]:
    """What the volumes of each patient who has a value count as: the mean of their losses, or the worst."""
    known = [row for row in rows if not math.isnan(row[column])]
    return list(by_patient(known, column, max if unit == "worst" else known_mean).values())


def _risk(rows: Sequence[Row], column: str, unit: Unit, reason: str | None) -> dict[str, Any]:
    """Mean loss over patients, with a bootstrap interval."""
    values = _known(rows, column, unit)
    realised, low, high = patient_mean(values)
    return {"reason": reason, "realised": realised, "interval": [low, high], "patients": len(values)}


def _coverage(rows: Sequence[Row], column: str, unit: Unit, reason: str | None = None) -> dict[str, Any]:
    """Share of patients for whom the promise was kept, with its exact binomial (Clopper-Pearson) interval."""
    values = _known(rows, column, unit)
    patients, missed = len(values), sum(values)
    low, high = exact_interval(patients - missed, patients) if patients >= LEAST_PATIENTS else (math.nan, math.nan)
    realised = 1 - missed / patients if patients else math.nan
    return {"reason": reason, "realised": realised, "interval": [low, high], "patients": patients}


def exact_interval(successes: float, trials: int, level: float = 0.95) -> tuple[float, float]:
    """Clopper and Pearson's interval of a proportion; NaN without trials.

    ``successes`` need not be whole, for a patient with several volumes may be covered in part.
    """
    from scipy.stats import beta

    if not trials:
        return math.nan, math.nan
    tail, failures = (1 - level) / 2, trials - successes
    low = 0.0 if successes <= 0 else float(beta.ppf(tail, successes, failures + 1))
    high = 1.0 if failures <= 0 else float(beta.ppf(1 - tail, successes + 1, failures))
    return low, high


def _size(rows: Sequence[Row], name: str) -> dict[str, float]:
    """How large the sets are, in millilitres and beside the true volumes."""
    size, true = (known_mean([row[f"{column}_ml"] for row in rows]) for column in (name, "true"))
    return {"size_ml": size, "size_share": _ratio(size, true)}


def _ratio(part: float, whole: float) -> float:
    return float(part / whole) if whole else math.nan
