"""The diagram of mean ranks, drawn with matplotlib in colours that colour-blind readers can tell apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from numpy.typing import ArrayLike

from crac.errors import InputError, require
from crac.metrics.ranks import friedman_rank, nemenyi, ranks
from crac.palette import PALETTE, STYLE, pyplot

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTH = 6.0  # inches; at 100 dots per inch a picture is 600 pixels wide


def critical_difference(
    table: ArrayLike, methods: Sequence[str], higher_is_better: bool | Sequence[bool], alpha: float = 0.05
) -> Figure:
    """Draw the mean ranks on a line; a bar joins methods between which Nemenyi's test finds no significant difference.

    Args:
        table: ``(methods, settings)``.
        methods: Their names.
        higher_is_better: For all columns, or for each.
        alpha: Level of the test.
    """
    plt, posthocs, pandas = pyplot(), require("scikit_posthocs"), require("pandas")
    ranked = ranks(table, higher_is_better, ties="average")
    if len(methods) != len(ranked):
        raise InputError(f"methods must name the {len(ranked)} rows of the table; got {len(methods)} names")
    mean = pandas.Series(friedman_rank(table, higher_is_better, ties="average"))
    with plt.rc_context(STYLE):
        figure: Figure
        figure, axis = plt.subplots(figsize=(WIDTH, 1.2 + 0.22 * len(mean)), layout="constrained")
        # Methods go by their number: of names, the bars would be drawn in another order each time.
        drawn = posthocs.critical_difference_diagram(
            mean, pandas.DataFrame(nemenyi(ranked)), ax=axis, alpha=alpha, label_fmt_left="{label}",
            label_fmt_right="{label}", color_palette=dict(zip(mean.index, PALETTE * len(mean), strict=False)),
        )  # fmt: skip
        for text in drawn["labels"]:
            number = int(text.get_text())
            text.set_text(f" {methods[number]} ({mean[number]:.1f}) ")
        axis.set_title(f"Mean rank, 1 is best; joined: no significant difference (Nemenyi, {alpha:g})", fontsize=11)
    return figure
