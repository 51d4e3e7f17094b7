"""Pages of the site that are made of other files of the repository, so that nothing is written twice."""

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
MOVED = {
    "README.md": "index.md",
    "CHANGELOG.md": "reference/changelog.md",
    "CONTRIBUTING.md": "reference/contributing.md",
    "CITATION.cff": "CITATION.cff",
}
"""Files outside docs/ and the pages they become."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the files of the repository's root."""
    for source, page in MOVED.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, **_: Any) -> str:
    """Point links to where their targets are on the site; they are written so that they work in the repository too."""
    pages = {page: source for source, page in MOVED.items()}
    here = pages.get(page.file.src_uri, f"docs/{page.file.src_uri}")

    def moved(match: re.Match[str]) -> str:
        target, sign, anchor = match[1].partition("#")
        if not target or "://" in target or target.startswith("mailto:"):
            return match[0]
        file = posixpath.normpath(posixpath.join(posixpath.dirname(here), target))
        file = MOVED.get(file, file.removeprefix("docs/"))
        return f"]({posixpath.relpath(file, posixpath.dirname(page.file.src_uri) or '.')}{sign}{anchor})"

    return re.sub(r"\]\(([^)\s]+)\)", moved, markdown)
