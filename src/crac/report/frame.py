"""The frame of every page: one style, one script, and on top the verdict, the numbers and the contents."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crac._version import __version__
from crac.errors import require

jinja2, markupsafe = require("jinja2"), require("markupsafe")

if TYPE_CHECKING:
    from markupsafe import Markup

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


def svg_uri(svg: str) -> str:
    """Return a picture as the address that holds it."""
    return f"data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}"


def to_html(markdown: str) -> Markup:
    """Return Markdown as HTML. Marks of HTML in it stay text, and of links their words: the page stands alone."""
    parser = require("markdown_it").MarkdownIt("commonmark", {"html": False}).enable("table")
    parser.add_render_rule("table_open", lambda *_: '<div class="scroll"><table>')
    parser.add_render_rule("table_close", lambda *_: "</table></div>")
    tokens: list[Any] = parser.parse(markdown)
    for token in tokens:
        token.children = [one for one in token.children or () if one.type not in ("link_open", "link_close")]
    html: Markup = markupsafe.Markup(parser.renderer.render(tokens, parser.options, {}))
    return html
