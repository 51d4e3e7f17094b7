"""The frame of every page: one style, one script, and on top the verdict, the numbers and the contents."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from crac._version import __version__
from crac.errors import require

jinja2, markupsafe = require("jinja2"), require("markupsafe")

TEMPLATES = Path(__file__).with_name("templates")


def fill(
    template: str,
    *,
    title: str,
    kicker: str,
    about: str,
    verdict: Sequence[str],
    numbers: Sequence[Mapping[str, Any]],
    several: bool,
    no_intervals: str,
    contents: Sequence[tuple[str, str]],
    data: Mapping[str, Any],
    **content: Any,
) -> str:
    """Return a page, which holds all it shows and loads nothing.

    Args:
        template: Name of the template, which extends ``base.html.j2``.
        title: Heading of the page.
        kicker: A few words above it.
        about: A sentence about what was measured.
        verdict: What was found.
        numbers: Each with its ``name``, its ``measure``, a sentence of ``words``, and what is ``shown``: ``label``,
            ``mean`` and ``range``, and the number of its ``colour`` if it has one.
        several: Whether each number is shown of several, so that they need their labels.
        no_intervals: Why no interval is given; empty if they are.
        contents: Anchor and name of each section.
        data: What the script needs: ``views`` and ``colours``.
        **content: What the template prints in its sections.
    """
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES), autoescape=True, trim_blocks=True, lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )  # fmt: skip
    page: str = environment.get_template(template).render(
        title=title, kicker=kicker, about=about, verdict=verdict, numbers=numbers, several=several,
        no_intervals=no_intervals, contents=contents, data=data, version=__version__,
        style=markupsafe.Markup((TEMPLATES / "style.css").read_text(encoding="utf-8")),
        script=markupsafe.Markup((TEMPLATES / "page.js").read_text(encoding="utf-8")),
        **content,
    )  # fmt: skip
    return page
