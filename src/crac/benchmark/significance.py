"""Whether our methods differ from their rivals by more than the choice of test volumes."""

from __future__ import annotations

from dataclasses import dataclass

from crac.benchmark.scores import MAIN, Group, Row
from crac.benchmark.tables import Measure, Table, rounded
from crac.metrics import paired_bootstrap

__all__ = ["Difference", "bootstrap_table", "difference"]


@dataclass(frozen=True)
class Difference:
    """One method minus another.

    Args:
        measure: Of what.
        estimate: Mean over the volumes of the difference of their means over seeds.
        low: Lower end of the 95 % interval.
        high: Upper end.
    """

    measure: Measure
    estimate: float
    low: float
    high: float

    @property
    def verdict(self) -> str:
        """``better``, ``worse``, or nothing where the interval holds 0."""
        if self.low <= 0 <= self.high:
            return ""
        return "better" if (self.low > 0) == bool(self.measure.higher) else "worse"

    def __str__(self) -> str:
        low, estimate, high = (f"{self._signed(value)}" for value in (self.low, self.estimate, self.high))
        return f"{estimate} [{low}, {high}]" + (f" {self.verdict}" if self.verdict else "")

    def _signed(self, value: float) -> str:
        shown = rounded(value, self.measure.decimals)
        return f"{shown if shown else abs(shown):+f}"


def difference(first: Row, second: Row, measure: Measure) -> Difference | None:
    """Compare two methods on the volumes both were tested on; None where these are not the same."""
    if {*first.results[0].volumes} != {*second.results[0].volumes}:
        return None
    return Difference(measure, *paired_bootstrap(first.by_volume(measure), second.by_volume(measure)))


def bootstrap_table(group: Group, row: Row) -> Table:
    """One of our methods against every rival: difference, 95 % interval, and what it means."""
    rivals = [other for other in group.rows if other.method != row.method]
    rows = [
        [rival.label, *(str(found) if (found := difference(row, rival, m)) else None for m in MAIN)] for rival in rivals
    ]
    caption = (
        f"{group.title}: {row.label} minus each rival, with the 95 % interval of a paired bootstrap over "
        f"{len(row.results[0].volumes)} test volumes; better, worse: the interval leaves out 0"
    )
    return Table(f"bootstrap-{row.method}-{group.name}", caption, ["against", *(m.heading for m in MAIN)], rows)
