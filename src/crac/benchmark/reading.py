"""What the numbers say, in sentences that are computed like the tables are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from crac.benchmark.content import compared
from crac.benchmark.paper import paper_value
from crac.benchmark.scores import MAIN, MASK, Group, Row
from crac.benchmark.significance import difference
from crac.benchmark.tables import Measure, Number, signed

__all__ = ["against_rivals", "by_region", "differs_from_paper"]


def against_rivals(group: Group) -> Iterator[str]:
    """Where each of our methods stands against NACL and against temperature scaling."""
    rivals = [row for row in group.rows if row.results[0].cell.tempered or row.results[0].settings["method"] == "nacl"]
    for row in compared(group):
        for rival in rivals:
            parts = []
            for measure in MAIN:
                found = difference(row, rival, measure)
                if found is not None:
                    parts.append(f"{measure.heading} {found.verdict or 'not told apart'} ({found.interval})")
            if parts:
                yield f"**{row.label}** against {rival.label}: {'; '.join(parts)}."


def by_region(group: Group) -> Iterator[str]:
    """Inside organs and on boundaries, which method is closest to calibrated, and where ours stand."""
    for region, where in (("inner", "Inside organs"), ("outer", "On boundaries")):
        known = [(row, gap) for row in group.rows if (gap := _gap(row, region)) is not None]
        if not known:
            continue
        best, smallest = min(known, key=lambda pair: abs(pair[1].value))
        over = sum(gap.value > 0 for _, gap in known)
        ours = [f"{row.label} {gap.text()}" for row, gap in known if row.is_crac]
        yield (
            f"{where}, {over} of {len(known)} methods are overconfident; the smallest gap between confidence and "
            f"accuracy is that of {best.label}, {smallest.text()}." + (f" Ours: {', '.join(ours)}." if ours else "")
        )


def differs_from_paper(groups: Sequence[Group]) -> Iterator[str]:
    """How far our numbers lie from the paper's, and whether ours leads NACL as it does there."""
    for group in groups:
        values = {row.method: pairs for row in group.rows if (pairs := _beside_paper(row))}
        spans = []
        for measure in MAIN:
            moved = [ours - paper for pairs in values.values() for ours, paper in [pairs[measure]]]
            if moved:
                low, high = signed(min(moved), measure.decimals), signed(max(moved), measure.decimals)
                spans.append(f"{measure.heading} by {low} to {high}")
        if spans:
            both = f"over the {len(values)} methods both have"
            yield f"{group.title}: ours minus the paper's, {both}: {', '.join(spans)}."
        for row in compared(group):
            if row.method in values and "nacl" in values:
                leads = [_lead(measure, values[row.method], values["nacl"]) for measure in MAIN]
                yield f"{group.title}: {row.label} minus NACL: {', '.join(leads)}."


def _beside_paper(row: Row) -> dict[Measure, tuple[float, float]] | None:
    """Ours and the paper's value of each measure, where there are all."""
    pairs = {}
    for measure in MAIN:
        number, paper = row.number(measure), paper_value(row.results[0], measure.key.partition("[")[0])
        if number is None or paper is None:
            return None
        pairs[measure] = number.value, paper
    return pairs


def _lead(measure: Measure, row: dict[Measure, tuple[float, float]], rival: dict[Measure, tuple[float, float]]) -> str:
    here, there = (mine - its for mine, its in zip(row[measure], rival[measure], strict=True))
    return f"{measure.heading} {signed(here, measure.decimals)} ({signed(there, measure.decimals)} in the paper)"


def _gap(row: Row, region: str) -> Number | None:
    return row.over_seeds(lambda result: result.pooled[MASK]["by_region"][region]["gap"], signed=True)
