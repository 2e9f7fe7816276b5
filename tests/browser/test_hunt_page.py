"""The page of a hunt in a real browser, opened from a file as a reader would."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from support.hunt_sample import sample_page
from support.report_sample import HOSTILE

CHROMIUM = Path("/usr/bin/chromium")
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync"]

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if not CHROMIUM.exists():
        reason = f"{CHROMIUM} is not installed (apt-get install chromium)"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


def opened(browser: Browser, file: Path, width: int) -> tuple[Page, list[str]]:
    """Open a page; return it, and what it requested, wrote to the console, or showed."""
    page = browser.new_context(viewport={"width": width, "height": 900}).new_page()
    noise: list[str] = []
    page.on("console", lambda message: noise.append(message.text))
    page.on("pageerror", lambda error: noise.append(str(error)))
    page.on("dialog", lambda dialog: noise.append(dialog.message))
    page.on("request", lambda request: noise.append(request.url))
    page.goto(file.as_uri())
    return page, [text for text in noise if text != file.as_uri()]


@pytest.mark.parametrize("width", [1280, 400])
def test_the_page_fits_and_the_outcome_is_on_the_first_screen(
    browser: Browser, tmp_path: Path, width: int
) -> None:
    file = tmp_path / "index.html"
    file.write_text(sample_page("a task ran beside its mask"), encoding="utf-8")
    page, noise = opened(browser, file, width)
    assert [text for text in noise if not text.startswith("data:")] == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    for selector in ("h1", ".verdict", ".finding h2"):
        box = page.locator(selector).bounding_box()
        assert box is not None
        assert box["height"] > 10
        assert box["y"] + box["height"] <= 900
    picture = page.locator(".finding img")
    assert picture.evaluate("image => image.complete && image.naturalWidth") > 100
    assert page.locator("#suspicions tbody tr").count() == 2
    assert page.locator(".patch tbody tr.missed").count() == 2
    assert page.locator("#never tbody tr").count() == 1


def test_hostile_texts_stay_texts(browser: Browser, tmp_path: Path) -> None:
    for place, text in enumerate(HOSTILE):
        file = tmp_path / f"{place}.html"
        file.write_bytes(sample_page(text).encode("utf-8", "replace"))
        page, noise = opened(browser, file, 1280)
        assert [line for line in noise if not line.startswith("data:")] == []
        assert page.locator("script, main img:not([src^='data:'])").count() == 0
        assert page.locator("#suspicions tbody tr").count() == 2
