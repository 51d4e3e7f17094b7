"""The built site: complete, without anything from elsewhere, without marks that were meant to be read as Markdown."""

import importlib.util
import re
import zlib
from pathlib import Path

import pytest

import crac
from common import ROOT


def inventory(site: Path) -> set[str]:
    """Names that have an entry in the reference; the file is Sphinx's: four lines of text and a compressed list."""
    compressed = (site / "objects.inv").read_bytes().split(b"\n", 4)[4]
    return {line.split()[0] for line in zlib.decompress(compressed).decode().splitlines()}


def prose(page: str) -> str:
    """The text of a page without its code."""
    article = page.partition("<article")[2].partition("</article>")[0]
    return re.sub(r"<(pre|code|math)\b.*?</\1>", "", article, flags=re.DOTALL)


def test_reference_has_every_public_name(site: Path) -> None:
    assert {f"crac.{name}" for name in crac.__all__} - inventory(site) == set()


def test_nothing_is_fetched(site: Path) -> None:
    """Links may leave the site; what a page loads may not."""
    loaded = re.compile(r"<(?:script|img|link|iframe|source)\b[^>]*?(?:src|href)=\"?(https?:[^\" >]+)")
    pages = list(site.rglob("*.html"))
    assert len(pages) > 20
    for page in pages:
        assert not loaded.findall(page.read_text(encoding="utf-8")), page
    for style in site.rglob("*.css"):
        assert not re.search(r"(@import|url\()\s*[\"']?https?:", style.read_text(encoding="utf-8")), style


def test_markdown_is_rendered(site: Path) -> None:
    """A list without an empty line before it, a reST role, a fence in the wrong column: all stay visible as text."""
    for page in site.rglob("*.html"):
        text = prose(page.read_text(encoding="utf-8"))
        assert not re.findall(r"```|:(?:class|func|data|meth):|\*\*\w|<p>[-|] ", text), page


def test_badges_say_what_the_package_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = importlib.util.spec_from_file_location("figures", ROOT / "docs" / "figures.py")
    figures = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(figures)
    monkeypatch.setattr(figures, "HERE", tmp_path)
    figures.badges()
    made = {path.name: path.read_text(encoding="utf-8") for path in tmp_path.iterdir()}
    kept = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "docs" / "images").glob("badge_*.svg")}
    assert len(made) == 4
    assert made == kept
