"""Formulas as MathML, which browsers draw themselves: no script, no font, nothing to load."""

import html
import re
from typing import Any

from latex2mathml.converter import convert

FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)


def on_page_content(text: str, **_: Any) -> str:
    """Replace what ``pymdownx.arithmatex`` has marked."""
    return FORMULA.sub(
        lambda found: convert(html.unescape(found[2]), display="block" if found[1] == "div" else "inline"), text
    )
