"""How a measure is called, rounded and compared, in tables and on pages."""

from decimal import ROUND_HALF_UP, Decimal
from typing import NamedTuple

from crac.metrics.claims import side_of_zero
from crac.metrics.ranks import Interval


class Measure(NamedTuple):
    """A measure as tables and pages show it.

    Args:
        key: Name of the numbers.
        heading: Name in the tables.
        decimals: Number of decimals shown.
        higher: Whether a higher value is better; None where neither is.
        signed: Whether a plus sign is shown.
    """

    key: str
    heading: str
    decimals: int = 3
    higher: bool | None = False
    signed: bool = False

    def shown(self, value: float, signed: bool | None = None) -> str:
        """Return a value as the tables print it, half rounded up as in the paper; zero has no sign."""
        rounded = self.rounded(value)
        return f"{rounded:+f}" if rounded and (self.signed if signed is None else signed) else str(rounded)

    def rounded(self, value: float) -> Decimal:
        """Return a value with as many decimals as the tables print: 3.125 becomes 3.13."""
        rounded = Decimal(repr(float(value))).quantize(Decimal(1).scaleb(-self.decimals), ROUND_HALF_UP)
        return rounded if rounded else abs(rounded)


class Difference(NamedTuple):
    """The mean over patients of one model's values minus another's, with its 95 % interval; NaN if none is claimed."""

    measure: Measure
    estimate: float
    low: float
    high: float
    patients: int

    @property
    def side(self) -> int:
        """1 if all of the interval, as printed, lies above 0, -1 if below; 0 if it holds 0 or there is none."""
        if self.low != self.low:
            return 0
        low, high = self.measure.rounded(self.low), self.measure.rounded(self.high)
        return side_of_zero(Interval(0.0, float(low), float(high)))

    @property
    def verdict(self) -> str:
        """``better``, ``worse``, or nothing where the interval, as printed, holds 0 or there is none."""
        if self.side == 0 or self.measure.higher is None:
            return ""
        return "better" if (self.side > 0) == self.measure.higher else "worse"

    @property
    def words(self) -> str:
        """The verdict, or why there is none."""
        if self.low != self.low:
            return "too few patients to compare"
        return self.verdict or "no significant difference"

    @property
    def interval(self) -> str:
        """The estimate and its interval if it has one."""
        if self.low != self.low:
            return self.measure.shown(self.estimate, signed=True)
        estimate, low, high = (self.measure.shown(value, signed=True) for value in self[1:4])
        return f"{estimate} [{low}, {high}]"
