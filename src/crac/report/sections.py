"""The parts of a page as plain data: what its template prints."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from crac._version import __version__
from crac.evaluation.measure import BY_REGION, CALIBRATION, SEGMENTATION
from crac.report import charts, words
from crac.report.charts import Curve, Strip, with_interval
from crac.report.measure import Difference, Measure
from crac.report.pictures import pictures
from crac.report.result import Result

STRONG = 0.2
"""A gap from which on the table of gaps is coloured fully."""


def measures(result: Result, mask: str) -> dict[str, Measure]:
    """The measures that the page shows, by short names."""
    settings = result.summary["settings"]
    unit = "mm" if settings["unit"] == "mm" else "voxels"
    found = [
        Measure("dsc", "Dice", 3, True),
        Measure("hd95", f"HD95 ({unit})", 2, False),
        Measure("surface_dice", f"surface Dice at {distance(settings['tolerance'], unit)}", 3, True),
        Measure(f"ece[{mask}]", "ECE", 3, False),
        Measure(f"nll[{mask}]", "NLL", 3, False),
        Measure(f"gap[{mask}]", "gap", 3, None, signed=True),
        Measure(f"gap.inner[{mask}]", "gap inside", 3, None, signed=True),
        Measure(f"gap.outer[{mask}]", "gap on boundaries", 3, None, signed=True),
    ]
    return dict(zip(("dice", "hd95", "surface", "ece", "nll", "gap", "inner", "outer"), found, strict=True))


def distance(value: float, unit: str) -> str:
    """A length with its unit, which is singular where there is one."""
    return f"{value:g} {unit.removesuffix('s') if value == 1 else unit}"


def about(result: Result, several: bool, mask: str) -> str:
    """A sentence about what was measured."""
    organs = ", ".join(result.classes[1:])
    patients, volumes = result.patients, int(result.summary["volumes"])
    number = (
        f"{patients} patient{'s' * (patients != 1)}, {volumes} volume{'s' * (volumes != 1)}; " if not several else ""
    )
    return f"{number}{organs}. Calibration on {words.MASKS[mask]}; protocol {result.summary['settings']['name']}."


def numbers(results: Sequence[Result], chosen: Sequence[Measure]) -> Iterator[dict[str, Any]]:
    """The three numbers under the verdict."""
    texts = words.NUMBERS
    for measure, (name, text) in zip(chosen, texts, strict=True):
        values = []
        for colour, result in enumerate(results):
            shown, span = in_words(measure, result.over_patients(measure.key))
            values.append({"label": result.label, "mean": shown, "range": span, "colour": colour})
        yield {"name": name, "words": text, "measure": measure, "shown": values}


def in_words(measure: Measure, found: tuple[float, float, float]) -> tuple[str, str]:
    """A mean as printed, and a phrase with its interval if it has one."""
    mean, low, high = found
    span = "" if math.isnan(low) else f"95 % interval {measure.shown(low)} to {measure.shown(high)}"
    return "-" if math.isnan(mean) else measure.shown(mean), span


def differences(others: Sequence[Result], compared: Sequence[Sequence[Any]]) -> Iterator[dict[str, Any]]:
    """What differs from the first result, measure by measure."""
    for result, own in zip(others, compared, strict=True):
        rows = []
        for one in own:
            ends = [abs(value) for value in (one.estimate, one.low, one.high) if not math.isnan(value)]
            text = f"{one.measure.heading}: {one.interval}"
            drawn = charts.forest(one.low, one.high, one.estimate, max([*ends, 1e-9]), text) if ends else ""
            neither = "" if one.measure.higher is not None or math.isnan(one.low) else words.shift(one)
            rows.append({"difference": one, "drawn": drawn, "words": neither or one.words})
        yield {"label": result.label, "patients": max(one.patients for one in own), "rows": rows}


def reliability(number: int, result: Result, mask: str) -> dict[str, Any]:
    """The two large reliability diagrams of a result."""
    pooled = result.summary["pooled"][mask]
    overall = Curve("all voxels", pooled["bins"], number)
    regions = {words.REGIONS[name]: part for name, part in pooled["by_region"].items() if part["count"]}
    curves = [Curve(where, part["bins"], place) for place, (where, part) in enumerate(regions.items())]
    texts = [f"{where.capitalize()}: {_pooled_words(part)}" for where, part in regions.items()]
    about = f"{result.label}: accuracy against confidence, bin by bin. "
    return {
        "number": number,
        "label": result.label,
        "overall": charts.reliability([overall], about + _pooled_words(pooled)),
        "overall_words": _pooled_words(pooled),
        "regions": charts.reliability(curves, about + " ".join(texts)),
        "region_words": texts,
    }


def _pooled_words(pooled: Mapping[str, Any]) -> str:
    gap = Measure("gap", "gap", 3, None, signed=True).shown(pooled["gap"])
    return f"ECE {Measure('ece', 'ECE').shown(pooled['ece'])}, gap {gap}, {pooled['count']:,} voxels."


def by_class(results: Sequence[Result], mask: str) -> Iterator[dict[str, Any]]:
    """A small reliability diagram of each class."""
    for name in results[0].classes:
        own = [result.summary["pooled"][mask]["by_class"][name] for result in results]
        curves = [Curve(result.label, one["bins"], n) for n, (result, one) in enumerate(zip(results, own, strict=True))]
        eces = ", ".join("-" if one["ece"] is None else Measure("ece", "ECE").shown(one["ece"]) for one in own)
        text = f"ECE {eces}; {own[0]['labelled']:,} voxels labelled so."
        about = f"{name}: frequency against probability. {text}"
        yield {
            "name": name,
            "words": text,
            "drawn": charts.reliability(curves, about, ("probability", "frequency"), small=True),
        }


def gaps(result: Result, mask: str) -> dict[str, Any]:
    """The table of signed gaps by predicted class and region."""
    parts = result.summary["pooled"][mask]["by_region"]
    measure = Measure("gap", "gap", 3, None, signed=True)
    rows = []
    for name in result.classes:
        cells = []
        for part in parts.values():
            own = part["by_class"][name]
            gap, number = own["predicted_gap"], own["predicted"]
            if gap is None or not number:
                cells.append({"text": "-", "voxels": "none", "style": ""})
                continue
            strength = 0.62 * min(abs(gap) / STRONG, 1)
            colour = "213,94,0" if gap > 0 else "0,114,178"
            style = f"background:rgba({colour},{strength:.2f})"
            cells.append({"text": measure.shown(gap), "voxels": f"{int(number):,} voxels", "style": style})
        rows.append({"name": name, "cells": cells})
    return {"label": result.label, "regions": [words.REGIONS[name] for name in parts], "rows": rows}


def segmentation(results: Sequence[Result], measure: Measure) -> dict[str, Any]:
    """A strip chart of one measure, all classes and results."""
    several, organs = len(results) > 1, results[0].classes[1:]
    rows = []
    for name in ["", *(organs if len(organs) > 1 else [])]:
        key = f"{measure.key}.{name}" if name else measure.key
        for number, result in enumerate(results):
            shown = name or ("mean of all classes" if len(organs) > 1 else organs[0])
            shown = f"{shown}, {result.label}" if several else shown
            rows.append(Strip(shown, result.by_patient(key), result.over_patients(key), number))
    return {"heading": measure.heading, "drawn": charts.strips(rows, measure, f"{measure.heading}, patient by patient")}


def calibration(result: Result) -> dict[str, Any] | None:
    """What a calibrator gained on patients left out of its fit; None where there is no calibrator."""
    about = result.summary.get("calibration")
    if not about:
        return None
    measure = Measure("", "", 4)
    rows = []
    for name, gain in about["gain"].items():
        low, high = (math.nan if value is None else value for value in gain["difference"][1:])
        change = Difference(measure, gain["difference"][0], low, high, 0)
        before, after = (measure.shown(gain[when]) for when in ("before", "after"))
        rows.append({"name": words.column(name), "before": before, "after": after, "difference": change.interval})
    return {
        "words": words.calibrated(result.label, about["method"], about.get("judged") or about["method"]),
        "rows": rows,
    }


def table(results: Sequence[Result], known: Mapping[str, Measure]) -> dict[str, Any]:
    """The table of volumes."""
    chosen = list(known.values()) if len(results) == 1 else [known[name] for name in ("dice", "hd95", "ece", "gap")]
    by_name = [{row["volume"]: row for row in result.rows} for result in results]
    volumes = list(dict.fromkeys(name for rows in by_name for name in rows))
    headings = ["volume"]
    headings += [m.heading if len(results) == 1 else f"{m.heading}, {r.label}" for m in chosen for r in results]
    rows = [
        {"name": name, "cells": [(m, rows.get(name, {}).get(m.key, math.nan)) for m in chosen for rows in by_name]}
        for name in volumes
    ]
    return {"headings": headings, "rows": rows}


def cases(results: Sequence[Result]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The slices to draw, and the cases they show."""
    views = [(result, view) for result in results for view in result.views]
    cases: dict[str, dict[str, Any]] = {}
    for number, (result, view) in enumerate(views):
        case = cases.setdefault(view.name, {"name": view.name, "views": [], "title": "", "image": False})
        case["image"] |= view.image.size > 0
        own = f"Dice {Measure('dsc', 'Dice').shown(view.dsc)}"
        text = f", its {view.which} case, {own}" if view.which else f", {own}"
        case["views"].append({"number": number, "label": result.label, "words": text, "image": view.image.size > 0})
        case["title"] = f"{view.name}" if len(results) > 1 else f"{view.which.capitalize()} case: {view.name}, {own}"
    return pictures([view for _, view in views]), list(cases.values())


def protocol(result: Result) -> list[tuple[str, str]]:
    """How it was measured, name by name."""
    settings = result.summary["settings"]
    unit = "mm" if settings["unit"] == "mm" else "voxels"
    empty = "the diagonal of the volume" if settings["empty"] == "diagonal" else settings["empty"]
    return [
        ("protocol", settings["name"]),
        ("grid", "that of the image" if settings["grid"] == "native" else "the prepared one the network sees"),
        ("HD95", f"{settings['hd95']}, in {unit}; where a class is absent: {empty}"),
        ("surface Dice", f"within {distance(settings['tolerance'], unit)}"),
        ("bins", f"{settings['bins']} of equal width; TACE leaves out probabilities up to {settings['threshold']:g}"),
        ("inside, boundary", f"a voxel on a boundary touches another class in its {settings['regions']}"),
        *((f"mask {mask}", words.MASKS[mask]) for mask in settings["masks"]),
    ]  # fmt: skip


def source(result: Result) -> list[tuple[str, str]]:
    """What was measured, name by name."""
    summary = result.summary
    rows = [("patients", str(summary["patients"])), ("volumes", str(summary["volumes"]))]
    rows += [(f"voxels, {mask}", f"{summary['pooled'][mask]['count']:,}") for mask in result.masks]
    for name in ("source", "model", "versions"):
        rows += [(key.replace("_", " "), str(value)) for key, value in summary.get(name, {}).items()]
    return [*rows, ("crac", str(summary.get("crac", __version__)))]


def everything(result: Result) -> Iterator[dict[str, str]]:
    """Every measure: per patient, per volume, pooled."""
    means, pooled = result.summary["per_volume"], result.summary["pooled"]
    columns = [(key, key, None) for key in SEGMENTATION]
    columns += [(f"{m}.{name}", f"{m} {name}", None) for m in SEGMENTATION for name in result.classes[1:]]
    for mask in result.masks:
        columns += [(f"{m}[{mask}]", f"{m} [{mask}]", pooled[mask].get(m)) for m in CALIBRATION]
        columns += [
            (f"{m}.{region}[{mask}]", f"{m} {region} [{mask}]", part.get(m))
            for region, part in pooled[mask]["by_region"].items()
            for m in BY_REGION
        ]
    for key, name, whole in columns:
        if key in means:
            measure = Measure(key, name, 4, None, signed=name.startswith("gap"))
            shown = ["-" if v is None else measure.shown(v) for v in (means[key]["mean"], means[key]["sd"], whole)]
            patients = with_interval(measure, result.over_patients(key))
            yield {
                "key": key,
                "name": name,
                "patients": patients,
                "mean": shown[0],
                "sd": shown[1].lstrip("+"),
                "pooled": shown[2],
            }
