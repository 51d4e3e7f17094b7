"""One self-contained page that shows a result, or compares several."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from crac.errors import InputError
from crac.files import write_text
from crac.metrics.claims import LEAST_PATIENTS, too_few
from crac.palette import outline_colour
from crac.report import charts, sections, words
from crac.report.frame import fill
from crac.report.measure import Measure
from crac.report.promises import promises
from crac.report.result import Result, check_comparable, difference, without_names


class Step(NamedTuple):
    """One step of how results came about, with the command that does it to one's own data."""

    title: str
    text: str
    command: str = ""


class Block(NamedTuple):
    """A further section of a page: an anchor, a heading, and safe pieces of HTML."""

    id: str
    title: str
    items: Sequence[Any]


def write_page(path: Path, results: Sequence[Result], **options: Any) -> Path:
    """Write the page that :func:`render` returns."""
    write_text(path, render(results, **options))
    return path


def render(
    results: Sequence[Result],
    *,
    title: str = "",
    kicker: str = "",
    anonymous: bool = False,
    lead: Sequence[str] = (),
    story: Sequence[Step] = (),
    blocks: Sequence[Block] = (),
) -> str:
    """Return the page of a result, or of several that are compared with the first.

    Args:
        results: What to show; several must have been measured in the same way.
        title: Heading of the page.
        kicker: A few words above it.
        anonymous: Leave out the images and the names of patients, volumes and folders.
        lead: Sentences that come before the verdict.
        story: How the results came about.
        blocks: Further sections.
    """
    if not results:
        raise InputError("results must hold at least one result; got none")
    check_comparable(results)
    results = without_names(results) if anonymous else list(results)
    context = _context(results, _mask(results), title, kicker)
    context["verdict"] = [*lead, *context["verdict"]]
    return fill("page.html.j2", **context, story=story, blocks=blocks, contents=_contents(context, story, blocks))


def verdict(results: Sequence[Result], who: str = "This model") -> list[str]:
    """Return the two sentences under the heading of the page of these results; ``who`` is what a single one is."""
    mask = _mask(results)
    known = sections.measures(results[0], mask)
    judged = [[difference(other, results[0], known[name]) for name in ("ece", "dice")] for other in results[1:]]
    return words.verdict(results, mask, judged, who)


def _mask(results: Sequence[Result]) -> str:
    """The first mask that all results have."""
    shared = [mask for mask in results[0].masks if all(mask in other.masks for other in results)]
    if not shared:
        raise InputError(f"{results[0].label} has no voxels to measure calibration on")
    return shared[0]


def _context(results: Sequence[Result], mask: str, title: str, kicker: str) -> dict[str, Any]:
    first, several = results[0], len(results) > 1
    known = sections.measures(first, mask)
    compared = [[difference(other, first, one) for one in known.values()] for other in results[1:]]
    intervals = all(not math.isnan(result.over_patients("dsc")[1]) for result in results)
    shown = [known[name] for name in ("ece", "gap", "dice")]
    drawn, cases = sections.cases(results)
    names = [result.label for result in results]
    joined = f"{', '.join(names[:-1])} and {names[-1]}" if several else names[0]
    return {
        "title": title or (f"{joined}, compared" if several else "Can these probabilities be trusted?"),
        "kicker": kicker or ("Comparison" if several else "Evaluation"),
        "about": sections.about(first, several, mask),
        "results": results,
        "several": several,
        "intervals": intervals,
        "no_intervals": _no_intervals(results, shown),
        "verdict": verdict(results),
        "few": charts.FEW,
        "mask_words": words.MASKS[mask],
        "numbers": list(sections.numbers(results, shown)),
        "differences": list(sections.differences(results[1:], compared)),
        "reliability": [sections.reliability(number, result, mask) for number, result in enumerate(results)],
        "by_class": list(sections.by_class(results, mask)),
        "gaps": [sections.gaps(result, mask) for result in results],
        "gap_note": words.LABEL_MASK if mask == "label_foreground" else "",
        "segmentation": [sections.segmentation(results, known[name]) for name in ("dice", "hd95", "surface")],
        "calibration": list(filter(None, map(sections.calibration, results))),
        "promises": list(filter(None, map(promises, results))),
        "table": sections.table(results, known),
        "cases": cases,
        "class_colours": [(name, outline_colour(k)) for k, name in enumerate(first.classes) if k],
        "limits": words.LIMITS,
        "protocol": sections.protocol(first),
        "sources": [{"label": result.label, "rows": sections.source(result)} for result in results],
        "everything": [{"label": result.label, "rows": list(sections.everything(result))} for result in results],
        "data": {"views": drawn, "colours": [outline_colour(k) for k in range(len(first.classes))]},
    }


def _no_intervals(results: Sequence[Result], shown: Sequence[Measure]) -> str:
    """Why some of the numbers on top of the page have no interval; empty if all have."""
    patients = {one.heading: min(result.patients_with(one.key) for result in results) for one in shown}
    few = {name: number for name, number in patients.items() if number < LEAST_PATIENTS}
    which = f" of {' and '.join(few)}" if len(few) < len(shown) else ""
    return f"No interval is given{which}: {too_few(min(few.values()))}." if few else ""


def _contents(context: Mapping[str, Any], story: Sequence[Step], blocks: Sequence[Block]) -> list[tuple[str, str]]:
    found = [
        ("story", "How it came about", story), ("differences", "Differences", context["differences"]),
        ("reliability", "Confidence", True), ("gaps", "Gaps", True), ("segmentation", "Segmentation", True),
        ("calibration", "Calibration", context["calibration"]), ("promises", "Promises", context["promises"]),
        ("patients", "Patients", True),
        ("cases", "Cases", context["cases"]), *((block.id, block.title, True) for block in blocks),
        ("print", "Small print", True),
    ]  # fmt: skip
    return [(id_, name) for id_, name, there in found if there]
