"""How every picture looks: colours that colour-blind readers can tell apart, and matplotlib set up to write files."""

import warnings
from typing import Any

from crac.errors import require

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#E69F00", "#56B4E9", "#CC79A7", "#000000")
"""Okabe and Ito's blue, vermillion, green, orange, sky blue, purple and black; white would swallow their yellow."""

ON_IMAGES = ("#56B4E9", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#0072B2")
"""The same without black, the bright ones first: outlines of the classes from 1 on, on images."""

MARKERS = "osD^vPX*"
"""One more than there are colours, so that a colour that returns has another marker."""

LINES = ("-", "--", ":", "-.")
"""Styles of lines, the solid one first."""

STYLE = {"font.size": 11, "axes.spines.top": False, "axes.spines.right": False, "savefig.dpi": 100}
"""Settings of matplotlib, for ``pyplot().rc_context``."""


SCRIPTS = ("Noto Sans CJK JP", "Noto Sans", "Arial Unicode MS", "Microsoft YaHei", "PingFang SC", "Segoe UI Symbol")
"""Fonts for letters that matplotlib's own does not have, where they are installed."""


def pyplot() -> Any:
    """Return ``matplotlib.pyplot``, drawing into files without a display and names in any script without warnings."""
    require("matplotlib").use("agg", force=False)
    plt = require("matplotlib.pyplot")
    warnings.filterwarnings("ignore", message=r"Glyph \d+ .* missing from")  # such letters are drawn as boxes
    installed = {font.name for font in require("matplotlib.font_manager").fontManager.ttflist}
    plt.rcParams["font.family"] = ["DejaVu Sans", *(name for name in SCRIPTS if name in installed)]
    return plt


def outline_colour(class_: int) -> str:
    """Return the colour of a class's outline on an image."""
    return ON_IMAGES[(class_ - 1) % len(ON_IMAGES)]
