"""What guarantees promised and what came of it, as parts of a page."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from markupsafe import Markup

from crac.report.charts import tag
from crac.report.result import Result

PROMISES = {
    "possible": ("the voxels that may belong to it leave out at most {} of it, on average", False),
    "certain": ("of the voxels that surely belong to it at most {} are wrong, on average", False),
    "margin": ("the contour grown by its margin holds all of it in at least {} of patients", True),
    "core": ("the contour shrunk by its margin lies within it in at least {} of patients", True),
    "volume": ("the interval holds the true volume in at least {} of patients", True),
}
"""Name of a promise -> what it says of a level, and whether it is one about the share of patients."""

SIDE, LEFT, TOP, FOOT = 220, 48, 8, 34


def promises(result: Result) -> dict[str, Any] | None:
    """Everything the page says about a result's guarantees; None where there are none."""
    about = result.summary.get("guarantees")
    if not about:
        return None
    alpha, referral = float(about["alpha"]), about["referral"]
    return {
        "label": result.label,
        "level": f"{100 * (1 - alpha):g} %",
        "fitted": int(about["calibration_patients"]),
        "patients": int(about["patients"]),
        "rows": [row for name, own in about["by_class"].items() for row in _rows(name, own, alpha)],
        "volumes": list(_volumes(result)),
        "risk": _risk_coverage(referral),
        "risk_words": _risk_words(referral),
    }


def _rows(name: str, own: Mapping[str, Any], alpha: float) -> Iterator[dict[str, str]]:
    for key, (words, coverage) in PROMISES.items():
        one = own[key]
        if one["reason"] is not None:
            yield {"name": name, "promise": f"nothing is promised: {one['reason']}", "realised": "-", "verdict": ""}
            continue
        level = 1 - alpha if coverage else alpha
        yield {
            "name": name,
            "promise": f"{words.format(f'{100 * level:g} %')}{_size(key, one)}",
            "realised": _share(one["realised"], one["interval"]),
            "verdict": _kept(one["interval"], level, coverage),
        }


def _size(key: str, one: Mapping[str, Any]) -> str:
    """How much was given for the promise: millimetres, or millilitres beside the true volume."""
    if key in ("margin", "core"):
        return " (no finite margin)" if one["millimetres"] is None else f" ({one['millimetres']:.1f} mm)"
    if key == "volume" and one["width_ml"] is not None:
        return f" (on average {one['width_ml']:.1f} ml wide)"
    if one.get("size_ml") is not None:
        return f" (on average {one['size_ml']:.1f} ml)"
    return ""


def _share(value: float | None, interval: Sequence[float | None]) -> str:
    if value is None:
        return "-"
    low, high = interval
    span = "" if low is None or high is None else f" [{100 * low:.1f}, {100 * high:.1f}]"
    return f"{100 * value:.1f} %{span}"


def _kept(interval: Sequence[float | None], level: float, coverage: bool) -> str:
    """Whether the interval of what was realised shows that a promise was not kept."""
    low, high = interval
    if low is None or high is None:
        return "too few patients to judge"
    broken = high < level if coverage else low > level
    return "not kept" if broken else "in line with the promise"


def _volumes(result: Result) -> Iterator[dict[str, Any]]:
    for name in result.classes[1:]:
        rows = [row for row in result.promised if row["class"] == name]
        if rows:
            judged = [row["interval_misses"] for row in rows if not math.isnan(row["interval_misses"])]
            about = f"{name}: estimated volumes and their intervals against the true ones, in ml."
            yield {
                "name": name,
                "words": f"{judged.count(0)} of {len(judged)} intervals hold the true volume.",
                "drawn": _scatter(rows, about),
            }


def _scatter(rows: Sequence[Mapping[str, Any]], about: str) -> Markup:
    ends = [row[key] for row in rows for key in ("true_ml", "estimate_ml", "high_ml")]
    most = max([value for value in ends if math.isfinite(value)], default=0) or 1.0

    def x(value: float) -> float:
        return LEFT + SIDE * value / most

    def y(value: float) -> float:
        return TOP + SIDE * (1 - min(value, most) / most)

    parts = [*_plane(("true volume (ml)", f"{most:.3g}"), ("estimate (ml)", f"{most:.3g}"))]
    parts.append(tag("path", d=f"M{LEFT} {TOP + SIDE}L{LEFT + SIDE} {TOP}", class_="ideal"))
    for row in rows:
        true, estimate, low, high = (float(row[key]) for key in ("true_ml", "estimate_ml", "low_ml", "high_ml"))
        if any(map(math.isnan, (true, estimate))):
            continue
        text = f"{row['volume']}: {estimate:.2f} ml [{low:.2f}, {high:.2f}], true {true:.2f} ml"
        colour = "c1" if row["interval_misses"] == 1 else "c0"
        if not math.isnan(low):
            parts.append(tag("path", d=f"M{x(true):.1f} {y(low):.1f}V{y(high):.1f}", class_=f"line {colour}"))
        parts.append(tag("circle", tag("title", text), cx=x(true), cy=y(estimate), r=3.5, class_=f"dot solid {colour}"))
    return _svg(parts, about)


def _svg(parts: Sequence[Markup], about: str) -> Markup:
    size = f"0 0 {LEFT + SIDE + 10} {TOP + SIDE + FOOT}"
    return tag("svg", *parts, viewBox=size, role="img", aria_label=about, class_="reliability")


def _plane(across: tuple[str, str], upwards: tuple[str, str]) -> Iterator[Markup]:
    """The square and its axes, each from 0 on: what it is, and where it ends."""
    (horizontal, right), (vertical, top), bottom = across, upwards, TOP + SIDE
    yield tag("rect", x=LEFT, y=TOP, width=SIDE, height=SIDE, class_="plane")
    yield tag("text", "0", x=LEFT - 5, y=bottom + 4, text_anchor="end")
    yield tag("text", top, x=LEFT - 5, y=TOP + 8, text_anchor="end")
    yield tag("text", "0", x=LEFT, y=bottom + 14)
    yield tag("text", right, x=LEFT + SIDE, y=bottom + 14, text_anchor="end")
    yield tag("text", horizontal, x=LEFT + SIDE / 2, y=bottom + 28, text_anchor="middle", class_="axis")
    turned = f"rotate(-90 10 {TOP + SIDE / 2:g})"
    yield tag("text", vertical, x=10, y=TOP + SIDE / 2, text_anchor="middle", transform=turned, class_="axis")


def _risk_coverage(referral: Mapping[str, Any]) -> Markup:
    coverage, risk = referral["coverage"], referral["risk"]
    most = max([value for value in risk if value is not None], default=0) or 1.0
    points = [
        (LEFT + SIDE * share, TOP + SIDE * (1 - value / most), share, value)
        for share, value in zip(coverage, risk, strict=True)
        if value is not None
    ]
    parts = [*_plane(("cases kept", "100 %"), ("1 - Dice of those kept", f"{most:.2g}"))]
    parts.append(tag("path", d="M" + "L".join(f"{x:.1f} {y:.1f}" for x, y, *_ in points), class_="line c0"))
    for x, y, share, value in points:
        words = tag("title", f"{share:.0%} kept: 1 - Dice {value:.3f}")
        parts.append(tag("circle", words, cx=x, cy=y, r=2.5, class_="dot solid c0"))
    about = f"Risk against coverage. {_risk_words(referral)}"
    return _svg(parts, about)


def _risk_words(referral: Mapping[str, Any]) -> str:
    areas = ", ".join(
        f"{referral[key]:.3f} {words}"
        for key, words in (("area", "by the model's own doubt"), ("area_best", "at best"), ("area_chance", "by chance"))
        if referral[key] is not None
    )
    flagged = f"{100 * referral['flagged']:.0f} % of patients are flagged" if referral["flagged"] is not None else ""
    return f"Area under the curve: {areas}; {flagged}." if flagged else f"Area under the curve: {areas}."
