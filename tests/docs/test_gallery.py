"""The gallery, which runs the examples and the notebook when the site is built: what they print and draw."""

import html
import re
from pathlib import Path

import pytest

from common import ROOT


def text_of(page: Path) -> str:
    """The text of a page, without marks."""
    article = page.read_text(encoding="utf-8").partition("<article")[2].partition("</article>")[0]
    return html.unescape(re.sub(r"<[^>]+>", "", article))


@pytest.mark.slow
def test_notebook(site: Path) -> None:
    page = site / "gallery" / "calibration.html"
    pictures = re.findall(r'src="(calibration_output_\w+\.png)"', page.read_text(encoding="utf-8"))
    assert len(pictures) == 4
    assert all((site / "gallery" / name).stat().st_size > 5000 for name in pictures)
    ece = dict(re.findall(r"^ *(cross-entropy|CRaC) +Dice [\d.]+, ECE ([\d.]+)", text_of(page), flags=re.MULTILINE))
    assert float(ece["CRaC"]) < float(ece["cross-entropy"])


def test_audit(site: Path) -> None:
    page = site / "gallery" / "audit.html"
    assert re.search(r"gap outer \[band\] +│ +0\.09", text_of(page))
    assert 'href="audit_report.html"' in page.read_text(encoding="utf-8")
    shown = (site / "gallery" / "audit_report.html").read_text(encoding="utf-8")
    assert "<svg" in shown
    assert not re.search(r"data:image|case_\d\d|example/", shown)  # pages of the repository are anonymous


def printed(site: Path, name: str) -> str:
    """What an example printed when the site was built."""
    return text_of(site / "gallery" / f"{name}.html").partition("It printed")[2]


def test_pytorch_and_lightning_train_the_same_network(site: Path) -> None:
    """The same seed, the same steps: the callback is the plain loop's three lines."""
    last = [re.findall(r"Dice [\d.]+, ECE .+", printed(site, name)) for name in ("with_pytorch", "with_lightning")]
    assert last[0][-1] == last[1][-1]


def test_monai(site: Path) -> None:
    found = re.search(r"ECE ([\d.]+), best ([\d.]+)", printed(site, "with_monai"))
    assert found
    assert 0 < float(found[2]) <= float(found[1]) < 1


def test_every_example_has_its_page(site: Path) -> None:
    for path in (ROOT / "examples").glob("with_*.py"):
        text = text_of(site / "gallery" / f"{path.stem}.html")
        assert path.read_text(encoding="utf-8").splitlines()[-1].strip() in text
        assert ("It printed" in text) != ("make test-nnunet" in text)
