"""What the results of a benchmark say, in words."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from crac.benchmark.results import MAIN, MASK, MOST_SHOWN, Group
from crac.benchmark.tables import REGIONS, best_of, column_of, on_band, paper_values
from crac.errors import require
from crac.metrics.claims import LEAST_PATIENTS, too_few
from crac.report.measure import Difference, Measure
from crac.report.sections import in_words

pandas = require("pandas")

NUMBERS = (
    ("Lowest calibration error (ECE)", "how far confidence is from accuracy; 0 is calibrated"),
    (
        "Lowest negative log-likelihood (NLL)",
        "what wrong probabilities cost; 0 is perfect",
    ),
    ("Highest Dice (DSC)", "overlap with the labels; 1 is perfect"),
)
"""What the numbers on top of the page are, and what they mean."""

WHERE = {"inner": "Inside organs", "outer": "On boundaries"}


def first_by_rank(group: Group) -> dict[str, Any] | None:
    """The first by Friedman rank, and who is significantly better than it where no voxel is left out."""
    enough = len(group.methods) > 2 and group.volumes["patient"].nunique() >= LEAST_PATIENTS
    for first in best_of(group, group.methods) if enough else ():
        better = {
            measure.heading: [
                group.labels[rival]
                for rival in group.methods
                if rival != first and (one := group.difference(rival, first, measure)) and one.verdict == "better"
            ]
            for measure in on_band(group)
        }
        return {"label": group.labels[first], "better": better}
    return None


def incomplete(group: Group) -> dict[int | str, int]:
    """The trainings that some rows of the tables lack, and how many rows have them."""
    number = Counter(result.cell.run for method in group.methods for result in group.of[method])
    return {run: rows for run, rows in number.items() if rows < len(group.methods)}


def rivals(group: Group) -> Iterator[tuple[str, str, list[Difference]]]:
    """Each of our methods against NACL and against temperature scaling, where the tables are short."""
    if len(group.methods) > MOST_SHOWN:
        return
    for method, rival in itertools.product(group.ours, group.rivals):
        if found := [one for measure in MAIN if (one := group.difference(method, rival, measure)) is not None]:
            yield group.labels[method], group.labels[rival], found


def regions(group: Group) -> Iterator[dict[str, Any]]:
    """Inside organs and on boundaries, which methods are overconfident, who is closest to calibrated, and ours."""
    for measure, (region, where) in zip(REGIONS[2:], WHERE.items(), strict=True):
        column = column_of(group, measure, group.methods)
        if len(known := column.values.dropna()):
            gap = measure._replace(key=f"gap.{region}[{MASK}]")
            found = [group.interval(method, gap) for method in known.index]
            fewest = min(one.patients if one else 0 for one in found)
            over = sum(one.side > 0 for one in found if one)
            claim = f"{over} of {len(known)} methods are overconfident"
            claim = too_few(fewest) if fewest < LEAST_PATIENTS else claim
            best = str(known.abs().idxmin())
            shown = [method for method in group.ours if method in known and method in group.shown]
            ours = [f"{group.labels[method]} {column.text(method)}" for method in shown]
            smallest = {"best": group.labels[best], "gap": column.text(best)}
            yield {"where": where, "claim": claim, "ours": ours, **smallest}


def against_paper(group: Group) -> dict[str, Any] | None:
    """How far our numbers lie from the paper's, and whether ours leads NACL as it does there."""
    paper = paper_values(group)
    ours = pandas.DataFrame({measure.key: group.over_seeds(measure.key)["mean"] for measure in MAIN})
    moved = (ours.loc[paper.index] - paper).dropna()

    def shown(*values: Any) -> list[tuple[str, ...]]:
        return [(m.heading, *(m.shown(one[m.key], signed=True) for one in values)) for m in MAIN]

    leads = [
        (group.labels[method], shown(ours.loc[method] - ours.loc["nacl"], paper.loc[method] - paper.loc["nacl"]))
        for method in group.ours
        if {method, "nacl"} <= set(moved.index)
    ]
    spans = shown(moved.min(), moved.max()) if len(moved) else []
    return {"title": group.title, "methods": len(moved), "spans": spans, "leads": leads} if spans else None


def patients(group: Group) -> int:
    """Return how many patients a group was tested on."""
    return int(group.volumes["patient"].nunique())


def about(group: Group) -> str:
    """Return what was compared in a group, in a few words."""
    number, tested = len(group.methods), patients(group)
    return f"{group.title}: {number} method{'s' * (number != 1)}, {tested} test patient{'s' * (tested != 1)}"


def leaders(group: Group, measure: Measure) -> tuple[list[str], Difference] | None:
    """Return the methods with the best mean over patients, as printed, the very best first, and its mean and interval.

    Where no method has a value there is None.
    """
    means = {method: group.by_patient(measure.key, [method])[method].mean() for method in group.methods}
    known = {method: mean for method, mean in means.items() if mean == mean}
    if not known:
        return None
    ranked = sorted(known, key=known.__getitem__, reverse=bool(measure.higher))
    found = group.interval(ranked[0], measure)
    best = measure.rounded(known[ranked[0]])
    return None if found is None else ([one for one in ranked if measure.rounded(known[one]) == best], found)


def _named(group: Group, methods: Sequence[str]) -> str:
    """The names of methods that share a place; of many the first and how many more."""
    names = [group.labels[method] for method in methods]
    if len(names) > 3:
        return f"{names[0]} and {len(names) - 1} more"
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else names[0]


def verdict(groups: Sequence[Group]) -> list[str]:
    """Say, in a sentence each, who is calibrated best and who overlaps best with the labels."""
    kinds = (MAIN[2], "lowest calibration error", "lower"), (MAIN[0], "highest Dice", "higher")
    found = [(what, [_leads(group, measure, than) for group in groups]) for measure, what, than in kinds]
    return [f"The {what} is that of {'; '.join(filter(None, leads))}." for what, leads in found if any(leads)]


def _leads(group: Group, measure: Measure, than: str) -> str:
    """Who leads, and whether that is more than chance: nothing is said of it below six patients."""
    if (found := leaders(group, measure)) is None:
        return ""
    first, one = found
    text = f"{_named(group, first)} on {group.title}, {measure.shown(one.estimate)} as the mean over patients"
    others = [method for method in group.methods if method not in first]
    if not others:
        return f"{text}, and there is no other"
    if patients(group) < LEAST_PATIENTS:
        return f"{text}, of {patients(group)} patients, too few to compare"
    compared = [group.difference(first[0], other, measure) for other in others]
    beaten = sum(other is not None and other.verdict == "better" for other in compared)
    if len(others) == 1:
        return f"{text}, {'' if beaten else 'not '}significantly {than} than the other"
    share = f"all {beaten}" if beaten == len(others) else f"{beaten or 'none'} of the {len(others)}"
    return f"{text}, significantly {than} than {share} others"


def numbers(groups: Sequence[Group]) -> list[dict[str, Any]]:
    """Return the three numbers on top of the page: of each group the best, with its interval over patients."""
    found = []
    for place, (name, about) in enumerate(NUMBERS):
        shown = []
        for group in groups:
            measure = (MAIN[2], group.fair[0], MAIN[0])[place]
            if (best := leaders(group, measure)) is not None:
                mean, span = in_words(measure, best[1][1:4])
                label = f"{_named(group, best[0])}, {group.title}"
                shown.append({"label": label, "mean": mean, "range": span, "colour": None})
        if shown:
            found.append({"name": name, "words": about, "measure": measure, "shown": shown})
    return found
