"""The site in a real browser, opened from the disk: search, narrow screens, formulas, the dark."""

import shutil
from pathlib import Path
from typing import Any

import pytest

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed (pip install playwright)")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed (apt-get install chromium)")
CONTRAST = """([selector]) => {
    const numbers = (colour) => colour.match(/[\\d.]+/g).map(Number);
    const light = (rgb) => rgb.slice(0, 3).map((v) => v / 255)
        .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
        .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
    const behind = (node) => {
        for (; node; node = node.parentElement) {
            const rgb = numbers(getComputedStyle(node).backgroundColor);
            if (rgb.length === 3 || rgb[3] === 1) return rgb;
        }
        return [255, 255, 255];
    };
    return [...document.querySelectorAll(selector)].map((node) => {
        const under = behind(node), ink = numbers(getComputedStyle(node).color), alpha = ink[3] ?? 1;
        const mixed = ink.slice(0, 3).map((v, i) => alpha * v + (1 - alpha) * under[i]);
        const [low, high] = [light(mixed), light(under)].sort((a, b) => a - b);
        return (high + 0.05) / (low + 0.05);
    });
}"""
"""Contrast of text to what is behind it, as WCAG defines it."""


@pytest.fixture(scope="module")
def browser() -> Any:
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture
def show(browser: Any, site: Path) -> Any:
    """Opens a page from the disk without a network; an error, or a request for anything else, fails the test."""
    problems: list[str] = []
    contexts = []

    def open_page(name: str, width: int = 1280, scheme: str = "light") -> Any:
        contexts.append(
            browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, offline=True)
        )
        page = contexts[-1].new_page()
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("request", lambda request: problems.append(request.url) if request.url.startswith("http") else None)
        page.goto((site / name).as_uri())
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert problems == []


@pytest.mark.parametrize(("word", "page"), [("temperature", "calibrate.html"), ("HD95", "metrics.html")])
def test_search_finds(show: Any, word: str, page: str) -> None:
    shown = show("index.html")
    shown.click(".md-search__input")
    shown.keyboard.type(word)
    shown.wait_for_selector(".md-search-result__link", timeout=60_000)
    found = shown.locator(".md-search-result__link")
    assert any(page in found.nth(number).get_attribute("href") for number in range(found.count()))
    found.first.click()
    shown.wait_for_url("**/*.html?h=*", timeout=60_000)
    assert word.lower() in shown.locator("article").inner_text().lower()


def test_navigation_on_a_telephone(show: Any) -> None:
    page = show("index.html", width=400)
    page.click("label.md-header__button[for=__drawer]")
    for name in ("How to", "With a model you have"):
        page.locator(".md-nav--primary label.md-nav__link:visible", has_text=name).first.click()
        page.wait_for_timeout(500)
    page.locator(".md-nav--primary a.md-nav__link:visible", has_text="Audit any model").first.click()
    page.wait_for_url("**/audit.html", timeout=60_000)
    assert page.locator("h1").inner_text().startswith("Audit any model")


def test_nothing_is_wider_than_a_telephone(show: Any, site: Path) -> None:
    page, wide = show("index.html", width=400), []
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 40
    for path in pages:
        page.goto(path.as_uri(), wait_until="domcontentloaded")
        if page.evaluate("document.documentElement.scrollWidth") > 400:
            wide.append(path.name)
    assert wide == []


def test_formulas_are_drawn(show: Any) -> None:
    page = show("understand/formulas.html")
    drawn = page.locator("math[display=block]")
    assert drawn.count() >= 5
    for number in range(drawn.count()):
        box = drawn.nth(number).bounding_box()
        assert box["width"] > 100
        assert box["height"] > 15
    fractions = page.locator("mfrac").first.bounding_box()
    assert fractions["height"] > page.locator("mfrac mn").first.bounding_box()["height"] * 1.5  # one above the other
    text = page.locator("article").inner_text()
    assert "\\frac" not in text
    assert "$" not in text


@pytest.mark.parametrize("name", ["index.html", "understand/formulas.html", "reference/api/losses.html"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_is_legible(show: Any, scheme: str, name: str) -> None:
    page = show(name, scheme=scheme)
    behind = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (behind == "rgb(255, 255, 255)") == (scheme == "light")
    for selector in (
        "article p",
        "article li",
        "article td",
        "article a:not(.headerlink)",
        "article pre code",
        "article math",
    ):
        ratios = page.evaluate(CONTRAST, [selector])
        assert all(ratio > 4.5 for ratio in ratios), (selector, min(ratios))
