"""A table of numbers, and its three forms: Markdown, LaTeX, CSV."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import ROUND_HALF_UP, Decimal
from typing import Literal

from crac.metrics import friedman_rank, ranks

__all__ = ["Entry", "Measure", "Number", "Table", "ranked_table", "rounded", "signed"]

MISSING = "-"


@dataclass(frozen=True)
class Measure:
    """A column of measurements.

    Args:
        key: Its name in the results.
        heading: Its name in tables.
        decimals: How many are shown.
        higher: Whether a higher value is better; None where neither is.
    """

    key: str
    heading: str
    decimals: int = 3
    higher: bool | None = False


@dataclass(frozen=True)
class Number:
    """One entry.

    Args:
        value: What was measured.
        sd: Its standard deviation over seeds, None for a single one.
        decimals: How many are shown.
        mark: The best of its column, the second, or neither.
        paper: What the paper prints here.
        signed: Whether a plus sign is shown.
    """

    value: float
    sd: float | None = None
    decimals: int = 3
    mark: Literal["", "best", "second"] = ""
    paper: float | None = None
    signed: bool = False

    def text(self, plus_minus: str = "±") -> str:
        """As shown, without its mark."""
        text = signed(self.value, self.decimals) if self.signed else str(rounded(self.value, self.decimals))
        if self.sd is not None:
            text += f" {plus_minus} {rounded(self.sd, self.decimals)}"
        return text


Entry = str | Number | None


def rounded(value: float, decimals: int) -> Decimal:
    """Rounded as people do, half away from zero: 3.125 is 3.13, as the paper has it."""
    return Decimal(repr(float(value))).quantize(Decimal(1).scaleb(-decimals), ROUND_HALF_UP)


def signed(value: float, decimals: int) -> str:
    """Rounded, with its sign; zero is neither above nor below."""
    shown = rounded(value, decimals)
    return f"{shown:+f}" if shown else str(abs(shown))


@dataclass(frozen=True)
class Table:
    """Rows under a header.

    Args:
        name: Of its files.
        caption: What it shows.
        header: One heading per column.
        rows: As many entries each; None where nothing was measured.
    """

    name: str
    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[Entry]]

    def markdown(self) -> str:
        """For pages."""
        marks = {"": "{}", "best": "**{}**", "second": "<u>{}</u>"}

        def show(entry: Entry) -> str:
            if not isinstance(entry, Number):
                return MISSING if entry is None else entry
            paper = f" ({rounded(entry.paper, entry.decimals)})" if entry.paper is not None else ""
            return marks[entry.mark].format(entry.text()) + paper

        lines = [list(self.header), ["---", *["---:"] * (len(self.header) - 1)]]
        lines += [[show(entry) for entry in row] for row in self.rows]
        return "".join(f"| {' | '.join(line)} |\n" for line in lines)

    def latex(self) -> str:
        """For papers; needs the package booktabs."""
        marks = {"": "{}", "best": r"\textbf{{{}}}", "second": r"\underline{{{}}}"}

        def show(entry: Entry) -> str:
            if not isinstance(entry, Number):
                return "--" if entry is None else _escape(entry)
            paper = f" ({rounded(entry.paper, entry.decimals)})" if entry.paper is not None else ""
            return marks[entry.mark].format(entry.text(r"$\pm$")) + paper

        body = [" & ".join(map(show, row)) + r" \\" for row in self.rows]
        return "\n".join(
            [
                f"% {self.caption}",
                rf"\begin{{tabular}}{{l{'r' * (len(self.header) - 1)}}}",
                r"\toprule",
                " & ".join(map(_escape, self.header)) + r" \\",
                r"\midrule",
                *body,
                r"\bottomrule",
                r"\end{tabular}",
                "",
            ]
        )

    def csv(self) -> str:
        """For programs: value, standard deviation and the paper's value in columns of their own."""
        columns = list(zip(*self.rows, strict=True)) if self.rows else []
        extras = [
            [part for part in ("sd", "paper") if any(isinstance(e, Number) and getattr(e, part) is not None for e in c)]
            for c in columns
        ]
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(
            name for heading, parts in zip(self.header, extras, strict=True)
            for name in (heading, *(f"{heading} {part}" for part in parts))
        )  # fmt: skip
        for row in self.rows:
            writer.writerow(
                value for entry, parts in zip(row, extras, strict=True)
                for value in (_plain(entry, "value"), *(_plain(entry, part) for part in parts))
            )  # fmt: skip
        return text.getvalue()


def ranked_table(
    name: str,
    caption: str,
    headings: Sequence[str],
    rows: Mapping[str, Sequence[Number | None]],
    higher: Sequence[bool | None],
    rank: bool = True,
) -> Table:
    """A table of methods: best and second of each column marked, Friedman rank and final rank at the end.

    Marks and ranks follow from the values as printed, ties sharing the best rank, so that a reader can check them. A
    method with a missing entry is shown and not ranked.

    Args:
        name: Of its files.
        caption: What it shows.
        headings: Of the columns.
        rows: Label of a method -> its entries.
        higher: For each column, whether higher is better; None where neither is, which also is not ranked.
        rank: Whether to add the ranks.
    """
    columns = [_marked(column, better) for column, better in zip(zip(*rows.values(), strict=True), higher, strict=True)]
    entries: list[list[Entry]] = [[label, *row] for label, row in zip(rows, zip(*columns, strict=True), strict=True)]
    header = ["method", *headings]
    if not rank:
        return Table(name, caption, header, entries)
    compared = [index for index, better in enumerate(higher) if better is not None]
    complete = [i for i, row in enumerate(rows.values()) if all(row[index] is not None for index in compared)]
    friedman: dict[int, Number] = {}
    if complete:
        shown = [[_shown(list(rows.values())[i][index]) for index in compared] for i in complete]
        mean = friedman_rank(shown, [bool(higher[index]) for index in compared], ties="min")
        friedman = {i: Number(float(value), decimals=2) for i, value in zip(complete, mean, strict=True)}
    marked = _marked([friedman.get(i) for i in range(len(entries))], False)
    final = _final(marked)
    ranked = [[*row, mark, place] for row, mark, place in zip(entries, marked, final, strict=True)]
    return Table(name, caption, [*header, "Friedman rank", "final rank"], ranked)


def _final(friedman: Sequence[Number | None]) -> list[str | None]:
    known = [entry.value for entry in friedman if entry is not None]
    places = iter(ranks([[value] for value in known], False, ties="min")[:, 0].tolist() if known else list[float]())
    return [None if entry is None else str(int(next(places))) for entry in friedman]


def _marked(column: Sequence[Number | None], higher: bool | None) -> list[Number | None]:
    values = [_shown(entry) for entry in column]
    known = sorted({value for value in values if not math.isnan(value)}, reverse=bool(higher))
    if higher is None or len(known) < 2:
        return list(column)
    marks: dict[float, Literal["best", "second"]] = {known[0]: "best", known[1]: "second"}
    return [
        replace(entry, mark=marks.get(value, "")) if entry is not None else None
        for entry, value in zip(column, values, strict=True)
    ]


def _shown(entry: Number | None) -> float:
    return math.nan if entry is None else float(rounded(entry.value, entry.decimals))


def _plain(entry: Entry, part: str) -> str:
    if isinstance(entry, Number):
        value = getattr(entry, part)
        return "" if value is None else f"{value:.7g}"
    return entry or "" if part == "value" else ""


def _escape(text: str) -> str:
    for plain, escaped in (("\\", r"\textbackslash{}"), ("_", r"\_"), ("%", r"\%"), ("&", r"\&"), ("#", r"\#")):
        text = text.replace(plain, escaped)
    return text.replace("±", r"$\pm$").replace("λ", r"$\lambda$")
