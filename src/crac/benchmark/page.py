"""The page of a benchmark, in the frame that every page has."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from crac.benchmark import reading
from crac.benchmark.figures import MAPS
from crac.errors import require
from crac.metrics.claims import LEAST_PATIENTS, too_few
from crac.report import words
from crac.report.frame import fill

if TYPE_CHECKING:
    from crac.benchmark.report import Content


def page(content: Content, pictures: Mapping[str, str]) -> str:
    """Return the page; ``pictures`` holds the SVG of each figure by its path."""
    groups = content.groups
    few = {group.title: number for group in groups if (number := reading.patients(group)) < LEAST_PATIENTS}
    return fill(
        "benchmark.html.j2",
        title="How the methods compare",
        kicker=f"Benchmark · {', '.join(content.suites)}",
        about="; ".join(map(reading.about, groups)) + ".",
        verdict=reading.verdict(groups),
        numbers=reading.numbers(groups),
        several=True,
        no_intervals=" ".join(f"No interval is given of {title}: {too_few(number)}." for title, number in few.items()),
        contents=[
            ("tables", "Tables"),
            ("reading", "Reading"),
            *((f"group-{number}", section.group.title) for number, section in enumerate(content.sections)),
            ("print", "Small print"),
        ],
        data={"views": [], "colours": []},
        main=content.main,
        sections=[section._replace(reading=_html(section.reading)) for section in content.sections],
        prose={name: _html(text) for name, text in content.prose.items()},
        summary=_html(content.summary),
        notes=_html(content.notes),
        pictures={path: _uri(text) for path, text in pictures.items()},
        photos=[path for section in content.sections for path, what in section.figures.items() if what == MAPS],
        sources=list(_sources(content)),
        limits=words.LIMITS,
    )


def _sources(content: Content) -> list[tuple[str, str]]:
    """Hashes of the data and of the results, and the versions of every package that took part."""
    results = [result for group in content.groups for result in group.results]
    found = {f"data, {result.dataset['label']}": result.dataset.get("manifest_sha256", "-") for result in results}
    numbers = repr([(result.cell.name, sorted(result.volumes.items())) for result in results])
    found[f"measures of {len(results)} runs"] = hashlib.sha256(numbers.encode()).hexdigest()
    versions: dict[str, dict[str, None]] = {}
    for result in results:
        for name, version in result.environment["packages"].items():
            versions.setdefault(name, {})[version] = None
    return [*found.items(), *((name, ", ".join(known)) for name, known in sorted(versions.items()))]


def _uri(svg: str) -> str:
    return f"data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}"


def _html(text: str) -> Markup:
    """Return Markdown as HTML. Marks of HTML in it stay text, and of links their words: the page stands alone."""
    parser = require("markdown_it").MarkdownIt("commonmark", {"html": False}).enable("table")
    parser.add_render_rule("table_open", lambda *_: '<div class="scroll"><table>')
    parser.add_render_rule("table_close", lambda *_: "</table></div>")
    tokens: list[Any] = parser.parse(text)
    for token in tokens:
        token.children = [one for one in token.children or () if one.type not in ("link_open", "link_close")]
    return Markup(parser.renderer.render(tokens, parser.options, {}))
