"""The page in a real browser: nothing is loaded, nothing overflows, everything answers to mouse and keys."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from tests.benchmark.committed import FIXTURE
from tests.report.evaluations import CLASSES, NAUGHTY, case
from tests.report.test_promises import with_promises

from crac.benchmark.report import render
from crac.evaluation.calibrate import calibrate, of_cases
from crac.evaluation.case import LoadedCases
from crac.report.calibration import write_calibration_page
from crac.report.page import Step, write_page
from crac.report.result import Result

playwright = pytest.importorskip("playwright.sync_api", reason="pip install playwright")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed (apt-get install chromium)")


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


def calibration_page(path: Path) -> Path:
    given = of_cases(LoadedCases([case(number) for number in range(6)]), 3, class_names=CLASSES)
    use = "crac apply calibration.json --probabilities DIR --out DIR uses it"
    found = calibrate(given, "class_region_affine", folds=2, force=True)
    return write_calibration_page(path, found, {"probabilities": "a-very-long-path/" * 12, "labels": "labels"}, use)


@pytest.fixture(scope="module")
def pages(folders, tmp_path_factory) -> dict[str, Path]:
    """Pages of one result, two with long names, four, few patients, promises; a benchmark's and a calibration's."""
    folder = tmp_path_factory.mktemp("pages")
    sharp, soft = Result.read(folders(), "x"), Result.read(folders(8, 2.0), "a-name-that-goes-on-" * 4)
    story = [Step("A step", "What was done.", "crac evaluate " + "a-very-long-path/" * 12)]
    return {
        "one": write_page(folder / "one.html", [sharp]),
        "two": write_page(folder / "two.html", [sharp, soft], story=story),
        "promises": write_page(
            folder / "promises.html", [sharp, Result.read(with_promises(folders(), folder / "promised"), "y")]
        ),
        "four": write_page(
            folder / "four.html",
            [replace(one, label=f"{name}, as it is or calibrated") for one in (sharp, soft) for name in ("CE", "CRaC")],
        ),
        "few": write_page(folder / "few.html", [Result.read(folders(2), "x")]),
        "benchmark": render([FIXTURE / "results"], folder / "benchmark")[0],
        "calibration": calibration_page(folder / "calibration.html"),
    }


@pytest.fixture
def opened(browser, pages):
    """Opens a page; whatever it complains of or asks for is an error."""
    problems, contexts = [], []

    def open_page(name: str, width: int = 1400, scheme: str = "light"):
        contexts.append(browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme))
        page = contexts[-1].new_page()
        page.on("console", lambda message: problems.append(message.text))
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("dialog", lambda dialog: problems.append(dialog.message))
        page.on("request", lambda request: problems.append(request.url) if not local(request.url) else None)
        page.goto(pages[name].as_uri())
        page.wait_for_function("[...document.querySelectorAll('.case')].every((one) => one.dataset.ready)")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert problems == []


def local(url: str) -> bool:
    return url.startswith(("file:", "data:"))


def picture(page, case: str = "#case-0") -> str:
    return page.eval_on_selector(f"{case} canvas", "(canvas) => canvas.toDataURL()")


@pytest.mark.parametrize("width", [1400, 800, 400])
@pytest.mark.parametrize("name", ["one", "two", "four", "few", "promises", "benchmark", "calibration"])
def test_nothing_overflows(opened, name, width):
    page = opened(name, width, "dark" if width == 800 else "light")
    page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    # Tables scroll inside their frames; everything else ends before the edge of the window.
    beyond = page.evaluate(
        """() => [...document.querySelectorAll('main *, header *')]
        .filter((one) => !one.closest('.scroll, pre') && one.getBoundingClientRect().right > innerWidth + 1)
        .filter((one) => !one.closest('svg') || one.tagName === 'svg')
        .map((one) => one.outerHTML.slice(0, 120))"""
    )
    assert beyond == []


def test_slider_keys_and_wheel_change_the_slice(opened):
    page = opened("one")
    slices = json.loads(page.text_content("#data"))["views"][0]["slices"]
    slider, shown = page.locator("#case-0 .slice input"), page.locator("#case-0 output")
    slider.evaluate("(input) => { input.value = 0; input.dispatchEvent(new Event('input')); }")
    assert shown.inner_text() == f"slice {slices[0]}"
    first = picture(page)
    views = page.locator("#case-0 .views")
    views.focus()
    page.keyboard.press("ArrowRight")
    assert shown.inner_text() == f"slice {slices[1]}"
    second = picture(page)
    assert second != first
    page.keyboard.press("ArrowDown")
    assert picture(page) == first
    views.hover()
    page.mouse.wheel(0, 100)
    page.wait_for_function(f"document.querySelector('#case-0 canvas').dataset.slice === '{slices[1]}'")
    assert picture(page) == second
    slider.focus()
    page.keyboard.press("ArrowRight")
    assert shown.inner_text() == f"slice {slices[2]}"
    assert slider.get_attribute("aria-valuetext") == f"slice {slices[2]}"


def test_window_level_and_outlines_change_the_picture(opened):
    page = opened("one")
    before = picture(page)
    for control, key in ((".level input", "ArrowLeft"), (".width input", "ArrowLeft"), (".outlines input", "Space")):
        page.locator(f"#case-0 {control}").focus()
        page.keyboard.press(key)
        after = picture(page)
        assert after != before, control
        before = after


def test_pictures_show_the_case_as_it_is(opened, folders):
    """The label's outline is white and lies where the label is, neither turned nor mirrored, in its voxels' aspect."""
    page = opened("one")
    view = Result.read(folders()).views[0]
    slider = page.locator("#case-0 .slice input")
    slider.evaluate("(input) => { input.value = input.max; input.dispatchEvent(new Event('input')); }")
    number = int(page.get_attribute("#case-0 canvas", "data-slice"))
    label = view.label[view.slices.index(number - 1)]
    places = [(label > 0).any(1 - axis).nonzero()[0] for axis in (0, 1)]
    sides = [(found[0] / size, (found[-1] + 1) / size) for found, size in zip(places, label.shape, strict=True)]
    assert all(abs(low + high - 1) > 0.1 for low, high in sides)  # so that another way up would lie elsewhere
    size = page.eval_on_selector("#case-0 canvas", "(c) => [c.width, c.height]")
    assert size[1] / size[0] == pytest.approx(view.aspect * label.shape[0] / label.shape[1], rel=0.01)
    white = page.evaluate(
        """() => {
        const c = document.querySelectorAll('#case-0 canvas')[1];
        const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
        const found = [];
        for (let y = 0; y < c.height; y++) for (let x = 0; x < c.width; x++)
          if (Math.min(...d.slice(4 * (y * c.width + x), 4 * (y * c.width + x) + 3)) > 190)
            found.push([y / c.height, x / c.width]);
        return [0, 1].map((axis) => found.map((place) => place[axis]))
          .flatMap((places) => [places.reduce((a, b) => Math.min(a, b)), places.reduce((a, b) => Math.max(a, b))]);
        }"""
    )
    assert white == pytest.approx([*sides[0], *sides[1]], abs=0.02)


def test_sorting_sorts_both_ways_and_by_keyboard(opened):
    page = opened("one")

    def column(place: int) -> list[str]:
        return page.eval_on_selector_all(
            "table.sortable tbody tr", f"(rows) => rows.map((row) => row.cells[{place}].dataset.value)"
        )

    before = [float(value) for value in column(1)]
    button = page.locator("table.sortable th button").nth(1)
    button.click()
    assert [float(value) for value in column(1)] == sorted(before)
    button.focus()
    page.keyboard.press("Enter")
    assert [float(value) for value in column(1)] == sorted(before, reverse=True)
    assert page.get_attribute("table.sortable th:nth-child(2)", "aria-sort") == "descending"
    page.locator("table.sortable th button").nth(0).click()
    names = column(0)
    assert f"{NAUGHTY}-scan" in names
    assert [name for name in names if name.startswith("patient")] == sorted(n for n in names if n.startswith("patient"))


def test_every_figure_has_its_text_and_every_control_its_name(opened):
    for name, sections in (("one", 6), ("two", 6), ("benchmark", 4)):
        page = opened(name)
        nameless = page.evaluate(
            """() => [...document.querySelectorAll('svg:not([aria-hidden]), canvas, input, img')]
            .filter((one) => !one.getAttribute('aria-label')?.trim() && !one.closest('label')?.textContent.trim()
                && !one.alt?.trim())
            .map((one) => one.outerHTML.slice(0, 100))"""
        )
        assert nameless == []
        assert page.evaluate("[...document.querySelectorAll('figure')].every((one) => one.querySelector('figcaption'))")
        assert page.evaluate("document.querySelectorAll('main h2').length") >= sections
        assert page.evaluate("[...document.images].every((one) => one.naturalWidth > 100)")


def test_explanations_open_by_keyboard(opened):
    page = opened("one")
    summary = page.locator("#reliability details.what summary")
    summary.focus()
    page.keyboard.press("Enter")
    assert "probability of the predicted class" in page.locator("#reliability details.what").inner_text()


@pytest.mark.parametrize("name", ["one", "four"])
def test_it_prints_on_a4(opened, name):
    page = opened(name)
    pdf = page.pdf(format="A4")
    assert pdf.startswith(b"%PDF")
    page.emulate_media(media="print")
    page.set_viewport_size({"width": 700, "height": 990})  # A4 between its margins
    assert page.evaluate("document.documentElement.scrollWidth") <= 700
    assert not page.locator("nav").is_visible()
    boxes = [page.locator("#case-0 canvas").nth(number).bounding_box() for number in range(3)]
    assert len({round(box["y"]) for box in boxes}) == 1  # beside each other, as on a wide screen
