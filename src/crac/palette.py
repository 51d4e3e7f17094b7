"""How every picture looks: colours that colour-blind readers can tell apart, and matplotlib set up to write files."""

from typing import Any

from crac.errors import require

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#E69F00", "#56B4E9", "#CC79A7", "#000000")
"""Okabe and Ito's blue, vermillion, green, orange, sky blue, purple and black; white would swallow their yellow."""

MARKERS = "osD^vPX*"
"""One more than there are colours, so that a colour that returns has another marker."""

STYLE = {"font.size": 11, "axes.spines.top": False, "axes.spines.right": False, "savefig.dpi": 100}
"""Settings of matplotlib, for ``pyplot().rc_context``."""


def pyplot() -> Any:
    """Return ``matplotlib.pyplot``, drawing into files without a display."""
    require("matplotlib").use("agg", force=False)
    return require("matplotlib.pyplot")
