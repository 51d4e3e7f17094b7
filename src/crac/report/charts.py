"""Charts as inline SVG: they take the colours of the page, light or dark, and every mark says what it is.

Names come from users. Everything goes through :func:`tag`, which escapes text and attributes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from markupsafe import Markup, escape

from crac.report.measure import Measure

FEW = 30
"""Voxels; the accuracy of fewer is mostly chance and is drawn hollow."""

LEFT, TOP, SIDE, GAP, FOOT = 42, 8, 260, 14, 54
"""A reliability diagram: margins, side of the square, space to the histogram and its height."""


class Curve(NamedTuple):
    """One line of a reliability diagram: its name, its bins and the number of its colour."""

    name: str
    bins: Mapping[str, Sequence[Any]]
    colour: int


class Strip(NamedTuple):
    """One row of a strip chart.

    Attributes:
        name: What the row shows.
        values: Name of a patient -> value.
        mean: Mean over patients and the ends of its interval, NaN where none is claimed.
        colour: Number of its colour.
    """

    name: str
    values: Mapping[str, float]
    mean: tuple[float, float, float]
    colour: int = 0


def tag(name: str, *children: Any, **attributes: Any) -> Markup:
    """Return an element; ``_`` in the names of attributes stands for ``-``."""
    shown = "".join(
        f' {key.strip("_").replace("_", "-")}="{escape(_short(value))}"' for key, value in attributes.items()
    )
    inside = Markup("").join(children)
    return Markup(f"<{name}{shown}>{inside}</{name}>") if children else Markup(f"<{name}{shown}/>")


def _short(value: Any) -> Any:
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else value


def reliability(
    curves: Sequence[Curve], about: str, axes: tuple[str, str] = ("confidence", "accuracy"), small: bool = False
) -> Markup:
    """Accuracy against confidence, bin by bin, and under it the share of the voxels in each bin.

    Args:
        curves: What is drawn.
        about: What the diagram shows, for those who cannot see it.
        axes: What the axes are.
        small: Leave out what does not fit in a small picture: the names of the axes and every other tick.
    """
    parts = [*_frame(axes, small)]
    for curve in curves:
        parts += _curve(curve, axes, alone=len(curves) == 1)
    parts += _shares(curves)
    size = f"0 0 {LEFT + SIDE + 10} {TOP + SIDE + GAP + FOOT + 30}"
    return tag("svg", *parts, viewBox=size, role="img", aria_label=about, class_="reliability")


def _frame(axes: tuple[str, str], small: bool) -> Iterable[Markup]:
    bottom, base = TOP + SIDE, TOP + SIDE + GAP + FOOT
    yield tag("rect", x=LEFT, y=TOP, width=SIDE, height=SIDE, class_="plane")
    for step in (0, 25, 50, 75, 100):
        x, y = LEFT + SIDE * step / 100, bottom - SIDE * step / 100
        if step % 100:
            yield tag("path", d=f"M{LEFT} {y:.0f}H{LEFT + SIDE}M{x:.0f} {TOP}V{bottom}", class_="grid")
        if small and step % 50:
            continue
        yield tag("text", f"{step} %", x=LEFT - 5, y=y + 4, text_anchor="end")
        anchor = {0: "start", 100: "end"}.get(step, "middle")
        yield tag("text", f"{step} %", x=x, y=base + 14, text_anchor=anchor)
    yield tag("path", d=f"M{LEFT} {bottom}L{LEFT + SIDE} {TOP}", class_="ideal")
    if small:
        return
    yield tag("text", axes[0], x=LEFT + SIDE / 2, y=base + 28, text_anchor="middle", class_="axis")
    turned = f"rotate(-90 9 {TOP + SIDE / 2:g})"
    yield tag("text", axes[1], x=9, y=TOP + SIDE / 2, text_anchor="middle", transform=turned, class_="axis")
    middle = TOP + SIDE + GAP + FOOT / 2
    yield tag("text", "voxels", x=LEFT - 5, y=middle + 4, text_anchor="end")


def _curve(curve: Curve, axes: tuple[str, str], alone: bool) -> Iterable[Markup]:
    points = []
    for confidence, accuracy, count in zip(*(curve.bins[k] for k in ("confidence", "accuracy", "counts")), strict=True):
        if count:
            points.append((LEFT + SIDE * confidence, TOP + SIDE * (1 - accuracy), confidence, accuracy, int(count)))
    if alone:
        for x, y, confidence, _, _ in points:
            yield tag("path", d=f"M{x:.1f} {TOP + SIDE * (1 - confidence):.1f}V{y:.1f}", class_="stick")
    if points:
        yield tag(
            "path", d="M" + "L".join(f"{x:.1f} {y:.1f}" for x, y, *_ in points), class_=f"line c{curve.colour % 7}"
        )
    for x, y, confidence, accuracy, count in points:
        words = f"{curve.name}: {axes[0]} {confidence:.3f}, {axes[1]} {accuracy:.3f}, {count:,} voxels"
        hollow = " hollow" if count < FEW else ""
        yield _mark(curve.colour, x, y, words, hollow)


def _mark(colour: int, x: float, y: float, words: str, extra: str = "") -> Markup:
    """Return a marker whose shape also tells series apart."""
    r = 4
    shapes = (
        f"M{x - r:.1f} {y:.1f}a{r} {r} 0 1 0 {2 * r} 0a{r} {r} 0 1 0 -{2 * r} 0z",
        f"M{x - r:.1f} {y - r:.1f}h{2 * r}v{2 * r}h-{2 * r}z",
        f"M{x:.1f} {y - r - 1:.1f}l{r + 1} {r + 1}l-{r + 1} {r + 1}l-{r + 1} -{r + 1}z",
        f"M{x:.1f} {y - r:.1f}l{r + 0.6} {2 * r}h-{2 * r + 1.2}z",
    )
    return tag("path", tag("title", words), d=shapes[colour % len(shapes)], class_=f"mark c{colour % 7}{extra}")


def _shares(curves: Sequence[Curve]) -> Iterable[Markup]:
    """The share of the voxels in each bin, on a logarithmic scale from 0.01 % to all of them."""
    base, number = TOP + SIDE + GAP + FOOT, max(len(curve.bins["counts"]) for curve in curves)
    width = SIDE / number / len(curves)
    yield tag("path", d=f"M{LEFT} {base}H{LEFT + SIDE}", class_="rule")
    for place, curve in enumerate(curves):
        total = max(sum(curve.bins["counts"]), 1)
        for bin_, count in enumerate(curve.bins["counts"]):
            height = FOOT * max(0.0, 1 + math.log10(count / total) / 4) if count else 0.0
            if height:
                x = LEFT + SIDE * bin_ / number + place * width
                words = tag("title", f"{curve.name}: {count / total:.2%} of the voxels ({int(count):,})")
                box = {"x": x + 0.5, "y": base - height, "width": max(width - 1, 0.8), "height": height}
                yield tag("rect", words, **box, class_=f"bar c{curve.colour % 7}")


def strips(rows: Sequence[Strip], measure: Measure, about: str) -> Markup:
    """One dot per patient in each row, with the mean and its interval; wide and narrow screens show the same text.

    Args:
        rows: What is drawn.
        measure: How values are printed.
        about: What the chart shows, for those who cannot see it.
    """
    low, high, ticks = _scale([value for row in rows for value in row.values.values()], measure)

    def place(value: float) -> str:
        return f"{100 * (value - low) / (high - low):.2f}%"

    lines = []
    for row in rows:
        dots = [
            tag(
                "circle", tag("title", f"{name}: {measure.shown(value)}"), cx=place(value), cy=_jitter(number),
                r=3, class_=f"dot c{row.colour % 7}",
            )
            for number, (name, value) in enumerate(row.values.items())
            if not math.isnan(value)
        ]  # fmt: skip
        mean, left, right = row.mean
        marks = []
        if not math.isnan(left):
            marks.append(tag("line", x1=place(left), x2=place(right), y1=13, y2=13, class_="span"))
        if not math.isnan(mean):
            marks.append(tag("line", x1=place(mean), x2=place(mean), y1=3, y2=23, class_="mean"))
        words = f"{row.name}: {with_interval(measure, row.mean)}"
        drawn = tag("svg", *marks, *dots, role="img", aria_label=words, height=26, width="100%")
        value = tag("span", with_interval(measure, row.mean), class_="value")
        lines.append(tag("div", tag("span", row.name, class_="name"), drawn, value, class_="strip"))
    axis = [tag("text", measure.shown(tick), x=place(tick), y=12, text_anchor="middle") for tick in ticks]
    foot = tag("svg", *axis, height=16, width="100%", aria_hidden="true", class_="ticks")
    lines.append(tag("div", tag("span", "", class_="name"), foot, tag("span", "", class_="value"), class_="strip"))
    return tag("div", *lines, class_="strips", role="group", aria_label=about)


def _jitter(number: int) -> float:
    """Heights that keep dots of equal values apart, the same every time."""
    return 13 + 7 * math.sin(2.4 * number)


def _scale(values: Sequence[float], measure: Measure) -> tuple[float, float, list[float]]:
    """The ends of an axis and round numbers on it."""
    known = [value for value in values if not math.isnan(value)] or [0.0, 1.0]
    low, high, finest = min(known), max(known), 10.0**-measure.decimals
    if measure.higher and low >= 0 and high <= 1:
        low, high = min(low, 1 - finest), 1.0  # shares end at 1
    elif not measure.signed and low >= 0:
        low = 0.0
    if high - low < finest:  # else numbers on the axis would be printed alike
        low = math.floor(low / finest) * finest
        high = max(math.ceil(high / finest) * finest, low + finest)
    raw = max((high - low) / 4, finest)
    step = 10 ** math.floor(math.log10(raw))
    step *= next(factor for factor in (1, 2, 2.5, 5, 10) if factor * step >= raw)
    ticks = [number * step for number in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]
    pad = 0.06 * (high - low)  # room for dots and labels at the ends
    return low - pad, high + pad, [0.0 if abs(tick) < step / 2 else tick for tick in ticks]


def forest(low: float, high: float, estimate: float, reach: float, words: str) -> Markup:
    """A difference and its interval about 0, on a scale that ends at ``reach`` on both sides."""

    def place(value: float) -> str:
        return f"{50 + 46 * max(-1.0, min(1.0, value / reach)):.2f}%"

    parts = [tag("line", x1="50%", x2="50%", y1=0, y2=20, class_="rule")]
    if not math.isnan(low):
        parts.append(tag("line", x1=place(low), x2=place(high), y1=10, y2=10, class_="span"))
    parts.append(tag("circle", tag("title", words), cx=place(estimate), cy=10, r=4, class_="dot c0 solid"))
    return tag("svg", *parts, role="img", aria_label=words, height=20, width="100%")


def with_interval(measure: Measure, found: tuple[float, float, float]) -> str:
    """Return a mean as printed, with its interval if it has one."""
    mean, low, high = found
    if math.isnan(mean):
        return "-"
    return (
        measure.shown(mean)
        if math.isnan(low)
        else f"{measure.shown(mean)} [{measure.shown(low)}, {measure.shown(high)}]"
    )
