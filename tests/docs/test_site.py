"""The built site: complete, without anything from elsewhere, without marks that were meant to be read as Markdown."""

import importlib.util
import pkgutil
import re
import zlib
from pathlib import Path
from types import ModuleType

import pytest
from tests.docs.blocks import PYTHON, blocks, pages

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


def packages() -> list[ModuleType]:
    """The package and all in it that list their public names, but for what only the package itself uses."""
    names = [one.name for one in pkgutil.walk_packages(crac.__path__, "crac.") if one.ispkg]
    found = [importlib.import_module(name) for name in names if not name.startswith(("crac.kernels", "crac.cli"))]
    return [crac, *(one for one in found if hasattr(one, "__all__"))]


def places(package: ModuleType, name: str) -> set[str]:
    """Where the reference may have an entry for a public name: there, where it is defined, or in ``crac`` itself."""
    thing = getattr(package, name)
    found = {f"{package.__name__}.{name}", f"{getattr(thing, '__module__', '')}.{name}"}
    return found | ({f"crac.{name}"} if getattr(crac, name, None) is thing else set())


def test_reference_has_every_public_name(site: Path) -> None:
    known = inventory(site)
    public = [(package, name) for package in packages() for name in package.__all__]
    assert len(public) > 100
    assert [f"{package.__name__}.{name}" for package, name in public if not places(package, name) & known] == []


def test_reference_has_every_name_that_a_page_imports(site: Path) -> None:
    known = inventory(site)
    code = "\n".join(block.code for page in pages() for block in blocks(page, PYTHON))
    imports = re.findall(r"^from (crac[\w.]*) import (.+)$", code, flags=re.MULTILINE)
    assert len(imports) > 20
    used = {f"{module}.{name}" for module, names in imports for name in re.findall(r"\w+", names.partition("#")[0])}
    assert used - known == set()


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


def test_commands_and_settings_stand_as_the_program_has_them(site: Path) -> None:
    commands, settings = (
        prose((site / "reference" / f"{name}.html").read_text(encoding="utf-8")) for name in ("commands", "settings")
    )
    for sentence in (
        "Print the folder that holds the trainers, for nnUNet_extTrainer.",  # letters are as large as in the help
        "<p>RAW is only read. STORE is complete once it holds manifest.json",  # sentences are no block of code
        "processes (default: one a core)",  # nothing that holds on this machine alone
    ):
        assert sentence in commands
    assert "Whether predictions are averaged over mirrored images." in settings


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
