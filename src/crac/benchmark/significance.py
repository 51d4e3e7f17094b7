"""Whether our methods differ from their rivals by more than the choice of test volumes."""

from __future__ import annotations

from dataclasses import dataclass

from crac.benchmark.scores import MAIN, Group, Row, patient_table
from crac.benchmark.tables import Entry, Measure, Table, rounded, signed
from crac.metrics import paired_bootstrap

__all__ = ["Difference", "bootstrap_table", "difference"]


@dataclass(frozen=True)
class Difference:
    """One method minus another.

    Args:
        measure: Of what.
        estimate: Mean over the patients of the difference of their means over seeds.
        low: Lower end of the 95 % interval.
        high: Upper end.
    """

    measure: Measure
    estimate: float
    low: float
    high: float

    @property
    def verdict(self) -> str:
        """``better``, ``worse``, or nothing where the interval, as printed, holds 0."""
        low, high = rounded(self.low, self.measure.decimals), rounded(self.high, self.measure.decimals)
        if low <= 0 <= high:
            return ""
        return "better" if (low > 0) == bool(self.measure.higher) else "worse"

    @property
    def interval(self) -> str:
        """The estimate and its interval."""
        estimate, low, high = (signed(value, self.measure.decimals) for value in (self.estimate, self.low, self.high))
        return f"{estimate} [{low}, {high}]"


def difference(first: Row, second: Row, measure: Measure) -> Difference | None:
    """Compare two methods on the patients both were tested on; None where there is none."""
    table = patient_table([first, second], measure)
    return Difference(measure, *paired_bootstrap(*table)) if table.size else None


def bootstrap_table(group: Group, row: Row) -> Table:
    """One of our methods against every rival: difference, 95 % interval, and what it means."""
    rows: list[list[Entry]] = []
    for rival in group.rows:
        if rival.method != row.method:
            found = [difference(row, rival, measure) for measure in MAIN]
            rows.append(
                [rival.label, *(None if one is None else f"{one.interval} {one.verdict}".strip() for one in found)]
            )
    caption = (
        f"{group.title}: {row.label} minus each rival, means over seeds, with the 95 % interval of a paired bootstrap "
        f"over the {len(set(row.results[0].patients.values()))} test patients; better, worse: it leaves out 0"
    )
    return Table(f"bootstrap-{row.method}-{group.name}", caption, ["against", *(m.heading for m in MAIN)], rows)
