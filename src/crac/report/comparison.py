"""A table that compares methods, in its four forms: Markdown, HTML, LaTeX and CSV."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from crac.errors import require
from crac.metrics import friedman_rank
from crac.report.measure import Measure

markupsafe, pandas = require("markupsafe"), require("pandas")

if TYPE_CHECKING:
    from pandas import DataFrame, Series

ESCAPES = str.maketrans({"\\": r"\textbackslash{}", "±": r"$\pm$", "λ": r"$\lambda$", "~": r"\textasciitilde{}",
                         "^": r"\textasciicircum{}", **{c: rf"\{c}" for c in "_%&#${}"}})  # fmt: skip
MARKS = str.maketrans({c: rf"\{c}" for c in "\\|*`<"})


class Style(NamedTuple):
    """How a format writes the best entry of a column, the second, plus-minus, a missing entry, and names."""

    best: str
    second: str
    plus_minus: str
    missing: str
    escape: Callable[[str], str]


MARKDOWN = Style("**{}**", "<u>{}</u>", "±", "-", lambda text: text.translate(MARKS))
HTML = Style("<b>{}</b>", "<u>{}</u>", "±", "-", lambda text: str(markupsafe.escape(text)))
LATEX = Style(r"\textbf{{{}}}", r"\underline{{{}}}", r"$\pm$", "--", lambda text: text.translate(ESCAPES))


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Args:
        measure: How its numbers are named, rounded and compared.
        values: Numbers, or text, by row; rows without one are missing or NaN.
        sd: Standard deviations over seeds by row, if there are any.
        paper: What the paper prints by row, if it is shown.
        bounds: Ends of the 95 % interval by row, ``low`` and ``high``, if it is shown instead of deviations.
    """

    measure: Measure
    values: Series[Any]
    sd: Series[float] | None = None
    paper: Series[float] | None = None
    bounds: DataFrame | None = None

    @functools.cached_property
    def printed(self) -> Series[float]:
        """The numbers as printed: marks and ranks follow from these, so that readers can check them."""
        return self.values.dropna().map(self.measure.rounded).astype(float)

    def parts(self) -> Iterator[tuple[str, Series[Any] | None]]:
        """Yield the numbers of the column, each with what it adds to the heading."""
        yield "", self.values
        yield " sd", self.sd
        if self.bounds is not None:
            yield " low", self.bounds["low"]
            yield " high", self.bounds["high"]
        yield " paper", self.paper

    def text(self, row: str, style: Style = MARKDOWN) -> str:
        """Return an entry: mean ± standard deviation or [interval], marked, with the paper's value in brackets."""
        value, sd, paper = (
            math.nan if one is None else one.get(row, math.nan) for one in (self.values, self.sd, self.paper)
        )
        if isinstance(value, str):
            return style.escape(value)
        if math.isnan(value):
            return style.missing
        text = self.measure.shown(value)
        if not math.isnan(sd):
            text += f" {style.plus_minus} {self.measure.shown(sd, signed=False)}"
        if self.bounds is not None and row in self.bounds.dropna().index:
            low, high = (self.measure.shown(float(self.bounds[end][row])) for end in ("low", "high"))
            text += f" [{low}, {high}]"
        order = [] if self.measure.higher is None else sorted(set(self.printed), reverse=self.measure.higher)
        if len(order) > 1 and self.printed[row] in order[:2]:
            text = (style.best, style.second)[order.index(self.printed[row])].format(text)
        return text if math.isnan(paper) else f"{text} ({self.measure.shown(paper)})"


@dataclass(frozen=True)
class Table:
    """A table of methods, and its forms.

    Args:
        name: Name of its files.
        caption: What it shows.
        rows: Key of a row in the columns -> label.
        columns: The columns.
        corner: Heading of the labels.
    """

    name: str
    caption: str
    rows: Mapping[str, str]
    columns: Sequence[Column]
    corner: str = "method"

    def markdown(self) -> str:
        """Return the table for pages."""
        frame = self._texts(MARKDOWN)
        lines = [list(frame.columns), ["---", *["---:"] * len(self.columns)], *frame.to_numpy().tolist()]
        return "".join(f"| {' | '.join(line)} |\n" for line in lines)

    def html(self) -> Iterator[tuple[str, list[tuple[Any, Any]]]]:
        """Yield the rows for pages in HTML: a label, and for each entry what it is sorted by and safe text."""
        for row, label in self.rows.items():
            texts = [markupsafe.Markup(column.text(row, HTML)) for column in self.columns]
            values = [column.values.get(row, math.nan) for column in self.columns]
            yield label, [("" if value != value else value, text) for value, text in zip(values, texts, strict=True)]

    def latex(self) -> str:
        """Return the table for papers; it needs the package booktabs."""
        frame = self._texts(LATEX)
        layout = f"l{'r' * len(self.columns)}"
        return f"% {self.caption}\n" + frame.to_latex(index=False, escape=False, column_format=layout)

    def csv(self) -> str:
        """Return the table for programs: deviations and the paper's values in columns of their own."""
        parts = {
            f"{column.measure.heading}{ending}": values.reindex(list(self.rows))
            for column in self.columns
            for ending, values in column.parts()
            if values is not None and (not ending or values.notna().any())
        }
        frame = pandas.DataFrame(parts).set_axis(pandas.Index(self.rows.values(), name=self.corner))
        text: str = frame.to_csv(float_format="%.7g", lineterminator="\n")
        return text

    def ranked(self) -> Table:
        """Return the table with the Friedman rank and the final rank; a row with a missing entry has none."""
        compared = [column for column in self.columns if column.measure.higher is not None]
        printed = pandas.concat([column.printed for column in compared], axis=1).reindex(list(self.rows)).dropna()
        mean = pandas.Series(index=list(self.rows), dtype=float)
        if len(printed):
            mean[printed.index] = friedman_rank(printed, [bool(column.measure.higher) for column in compared])
        friedman = Column(Measure("friedman", "Friedman rank", 2), mean)
        final = Column(Measure("final", "final rank", 0, None), mean.rank(method="min"))
        return replace(self, columns=[*self.columns, friedman, final])

    def _texts(self, style: Style) -> DataFrame:
        labels = [style.escape(label) for label in self.rows.values()]
        columns = {style.escape(c.measure.heading): [c.text(row, style) for row in self.rows] for c in self.columns}
        frame: DataFrame = pandas.DataFrame({self.corner: labels, **columns})
        return frame
