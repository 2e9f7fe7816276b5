"""The report page in a real browser, opened from a file as a reader would."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Locator, Page, sync_playwright

from numalab.analysis.findings import TimeSeries
from numalab.report.document import CellReport, StudyResults
from numalab.report.page.cell_page import render_html
from numalab.report.page.curves import curves
from numalab.report.page.overview import OverviewStudy, render_overview
from support.report_sample import HOSTILE, hostile_report, sample_report, thread_cells

CHROMIUM = Path("/usr/bin/chromium")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]

pytestmark = pytest.mark.browser


@dataclass
class WatchedPage:
    """A page, and everything it did that a reader would not see."""

    page: Page
    console: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


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


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pages")
    for name, report in (("sample", sample_report()), ("hostile", hostile_report())):
        (folder / f"{name}.html").write_text(render_html(report), encoding="utf-8")
    studies = (
        OverviewStudy(StudyResults.of(sample_report()), ("sample.html",)),
        OverviewStudy(StudyResults.of(hostile_report()), ("hostile.html",)),
        OverviewStudy(StudyResults.of(*thread_cells()), ("sample.html",) * 4),
    )
    (folder / "overview.html").write_text(render_overview(studies), encoding="utf-8")
    return folder


def opened(context: BrowserContext, path: Path) -> WatchedPage:
    watched = WatchedPage(context.new_page())
    watched.page.on("console", lambda message: watched.console.append(message.text))
    watched.page.on("pageerror", lambda error: watched.console.append(str(error)))
    watched.page.on("dialog", lambda dialog: watched.console.append(f"dialog: {dialog.message}"))
    watched.page.on("request", lambda request: watched.requests.append(request.url))
    watched.page.goto(path.as_uri())
    watched.page.wait_for_selector("html[data-ready]")
    return watched


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    yield context
    context.close()


@pytest.fixture
def sample(context: BrowserContext, pages: Path) -> WatchedPage:
    return opened(context, pages / "sample.html")


def column(page: Page, table: str, place: int) -> list[str]:
    return page.locator(f"#{table} tbody tr > :nth-child({place + 1})").all_inner_texts()


@pytest.mark.parametrize("name", ["sample", "hostile"])
def test_nothing_is_requested_and_nothing_complained_of(
    context: BrowserContext, pages: Path, name: str
) -> None:
    watched = opened(context, pages / f"{name}.html")
    watched.page.mouse.move(640, 800)
    watched.page.wait_for_timeout(100)
    assert watched.console == []
    assert watched.requests == [(pages / f"{name}.html").as_uri()]


def test_a_request_would_be_refused(sample: WatchedPage, pages: Path) -> None:
    sample.page.evaluate("() => { new Image().src = 'no-such.png'; }")
    sample.page.wait_for_timeout(100)
    assert any("Content Security Policy" in line for line in sample.console)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 400])
def test_the_page_fits_its_window(browser: Browser, pages: Path, scheme: str, width: int) -> None:
    context = browser.new_context(
        viewport={"width": width, "height": 900},
        color_scheme="dark" if scheme == "dark" else "light",
    )
    watched = opened(context, pages / "sample.html")
    assert watched.page.evaluate("document.documentElement.scrollWidth") <= width
    assert watched.page.locator(".chart canvas").count() == 7  # CPUs, tasks, curves
    assert watched.page.locator(".heat canvas").count() == 4
    for box in (canvas.bounding_box() for canvas in watched.page.locator("canvas").all()):
        assert box is not None
        assert box["width"] <= width
    assert watched.console == []
    context.close()


def with_variants(report: CellReport, number: int) -> CellReport:
    """Return a report in which copies of the last variant are further ones."""
    last, more = report.variants[-1], number - len(report.variants)
    added = tuple(replace(last, name=f"{last.name}-{place}") for place in range(more))
    runs = tuple(
        replace(run, id=f"{run.id}-{variant.name}", variant=variant.name)
        for variant in added
        for run in report.runs
        if run.variant == last.name
    )
    comparisons = tuple(
        replace(
            row,
            summaries=row.summaries + row.summaries[-1:] * more,
            changes=row.changes + row.changes[-1:] * more,
        )
        for row in report.comparisons
    )
    return replace(
        report,
        variants=report.variants + added,
        runs=report.runs + runs,
        comparisons=comparisons,
    )


@pytest.mark.parametrize(
    ("variants", "width"), [(2, 1000), (2, 1100), (2, 1400), (3, 1000), (3, 1400), (5, 1900)]
)
def test_the_dots_of_each_run_are_seen(
    browser: Browser, tmp_path: Path, variants: int, width: int
) -> None:
    page = tmp_path / "page.html"
    page.write_text(render_html(with_variants(sample_report(), variants)), encoding="utf-8")
    context = browser.new_context(viewport={"width": width, "height": 900})
    tables = opened(context, page).page.locator(".scroll:has(> .keys)").all()
    assert tables
    for table in tables:
        assert table.evaluate("table => table.scrollWidth <= table.clientWidth")
    context.close()


def test_the_first_screen_answers_the_question(sample: WatchedPage) -> None:
    for selector in ("h1", ".verdict", ".first img >> nth=0", ".first img >> nth=1", "#keys"):
        box = sample.page.locator(selector).bounding_box()
        assert box is not None
        assert box["height"] > 10
        assert box["y"] + box["height"] <= 900


def contrast(page: Page, selector: str) -> float:
    """Contrast of text against the page's ground, as WCAG 2.1 defines it."""
    ratio: float = page.evaluate(
        """(selector) => {
          const light = (color) => {
            const [r, g, b] = color.match(/[\\d.]+/g).map(Number).map((v) => {
              v /= 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; });
            return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
          const a = light(getComputedStyle(document.querySelector(selector)).color);
          const b = light(getComputedStyle(document.body).backgroundColor);
          return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05); }""",
        selector,
    )
    return ratio


def test_the_page_and_its_charts_follow_the_colour_scheme(sample: WatchedPage) -> None:
    page = sample.page
    grounds = []
    pictures = []
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
        page.wait_for_timeout(200)
        grounds.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))
        pictures.append(page.locator(".chart canvas").first.screenshot())
        for selector in ("body", ".meta", ".better", ".c0", ".c1", ".different"):
            assert contrast(page, selector) >= 4.5, (scheme, selector)
    assert grounds[0] != grounds[1]
    assert pictures[0] != pictures[1]


def test_a_table_sorts_both_ways_and_by_number(sample: WatchedPage) -> None:
    page = sample.page
    head = page.locator("#values th[data-name='before 1']")
    button = head.locator("button")
    button.click()
    rising = column(page, "values", 2)
    assert rising[-4:] == ["99.60", "99.84", "1,555", "n/s"]
    assert rising[:2] == ["0", "0"]
    assert head.get_attribute("aria-sort") == "ascending"
    button.click()
    assert column(page, "values", 2)[:3] == ["1,555", "99.84", "99.60"]
    assert head.get_attribute("aria-sort") == "descending"


def test_missing_figures_sort_last_both_ways(sample: WatchedPage) -> None:
    page = sample.page
    button = page.locator("#all thead tr:last-child th button", has_text="mean").first
    for _ in range(2):
        button.click()
        assert column(page, "all", 2)[-1] == "n/s"


def test_sorting_works_from_the_keyboard(sample: WatchedPage) -> None:
    page = sample.page
    page.locator("#each-run th button").first.focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Enter")
    assert column(page, "each-run", 0)[0] == "before-s3"


def test_a_table_is_copied_as_aligned_text(context: BrowserContext, sample: WatchedPage) -> None:
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    page = sample.page
    page.locator("button[data-copy=all]").click()
    page.wait_for_function("document.querySelector('[data-copy=all] ~ .said').textContent")
    lines = page.evaluate("navigator.clipboard.readText()").splitlines()
    assert lines[0].split("  ")[0] == "measure"
    assert len(lines) == 1 + len(sample_report().measures)
    end = lines[0].index("before mean") + len("before mean")
    for line in lines[1:]:
        assert line[:end].rstrip() == line[:end]
        assert line[end : end + 2].strip() == ""


def test_the_changelog_is_copied_as_it_is(context: BrowserContext, sample: WatchedPage) -> None:
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    page = sample.page
    page.locator("button[data-copy=changelog]").click()
    page.wait_for_function("document.querySelector('[data-copy=changelog] ~ .said').textContent")
    text = page.evaluate("navigator.clipboard.readText()")
    assert text.startswith(sample_report().question)
    assert "mean  stddev" in text


def test_copying_works_where_the_clipboard_is_refused(sample: WatchedPage) -> None:
    page = sample.page
    page.evaluate("Object.defineProperty(navigator, 'clipboard', {value: undefined})")
    page.evaluate(
        "document.addEventListener('copy', () => { window.copied = document.activeElement.value })"
    )
    page.locator("button[data-copy=commands]").click()
    page.wait_for_function("document.querySelector('[data-copy=commands] ~ .said').textContent")
    assert page.evaluate("window.copied").splitlines() == list(sample_report().commands)
    assert page.locator("textarea").count() == 0


def test_pointing_at_a_bar_names_task_cpu_node_and_time(sample: WatchedPage) -> None:
    page = sample.page
    canvas = page.locator(".chart canvas").first
    box = canvas.bounding_box()
    assert box is not None
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 500, box["y"] + 2 + 17 * 2.5)
    tip = page.locator("#vg-tooltip-element.visible")
    tip.wait_for()
    text = tip.inner_text()
    assert "hog/" in text
    for word in ("CPU", "node", "from [ms]", "to [ms]"):
        assert word in text


def test_pointing_at_a_curve_gives_its_mean_and_band(sample: WatchedPage) -> None:
    page = sample.page
    canvas = page.locator("[data-chart=curve-local_faults-0] canvas")
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    assert box is not None
    tip = page.locator("#vg-tooltip-element.visible")
    for y in range(0, int(box["height"]), 3):  # down along one moment, until there is a point
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + y)
        page.wait_for_timeout(20)
        if tip.count():
            break
    keys, values = (tip.locator(f"td.{name}").all_inner_texts() for name in ("key", "value"))
    tips = dict(zip(keys, values, strict=True))
    (local, _) = curves(sample_report())
    (line,) = [line for line in local["diagrams"][0]["lines"] if line["label"] == tips["of"]]
    shown = [
        (f"{at:,.0f}", f"{mean:g}", f"{low:g}", f"{high:g}", f"{runs}")
        for at, mean, low, high, runs in zip(
            *(line[name] for name in ("start", "mean", "low", "high", "runs")), strict=True
        )
    ]
    words = ("until [ms]", "mean [%]", "minimum", "maximum", "runs")
    assert tuple(tips[word] for word in words) in shown, tips


def test_no_curve_is_drawn_over_steps_without_a_value(
    context: BrowserContext, tmp_path: Path
) -> None:
    report = sample_report()
    at = tuple(100.0 * step for step in range(1, 51))
    values = tuple(None if 20 <= step < 30 else 50.0 for step in range(50))
    series = (TimeSeries("local_faults", "Local", "%", None, at, values),)
    runs = tuple(
        replace(run, findings=replace(run.findings, series=series)) for run in report.findings
    )
    path = tmp_path / "gap.html"
    path.write_text(render_html(replace(report, findings=runs)), encoding="utf-8")
    page = opened(context, path).page
    canvas = page.locator("[data-chart=curve-local_faults-0] canvas")
    drawn = canvas.evaluate(
        """canvas => {
          const { width, height } = canvas;
          const { data } = canvas.getContext("2d").getImageData(0, 0, width, height);
          const colored = (x, y) => {
            const [red, green, blue] = data.subarray(4 * (y * width + x));
            return Math.max(red, green, blue) - Math.min(red, green, blue) > 60;
          };
          const row = (y) => [...Array(width).keys()].map((x) => colored(x, y));
          const count = (pixels) => pixels.filter((pixel) => pixel).length;
          const rows = [...Array(height).keys()].map(row);
          return rows.reduce((most, pixels) => (count(pixels) > count(most) ? pixels : most));
        }"""
    )
    places = [x for x, colored in enumerate(drawn) if colored]
    first, last = places[0], places[-1]
    share = [(x - first) / (last - first) for x in range(first, last) if not drawn[x]]
    assert share[0] == pytest.approx(0.4, abs=0.02)
    assert share[-1] == pytest.approx(0.6, abs=0.02)


def test_all_charts_zoom_together_and_back(sample: WatchedPage) -> None:
    page = sample.page
    charts = page.locator(".chart canvas").all()
    before = [chart.screenshot() for chart in charts]
    page.locator("button[data-zoom=in]").press("Enter")
    page.wait_for_timeout(200)
    assert all(a != chart.screenshot() for a, chart in zip(before, charts, strict=True))
    page.locator("button[data-zoom=all]").click()
    page.wait_for_timeout(200)
    assert all(a == chart.screenshot() for a, chart in zip(before, charts, strict=True))


def test_hostile_names_stay_text_in_page_and_tooltip(context: BrowserContext, pages: Path) -> None:
    watched = opened(context, pages / "hostile.html")
    page = watched.page
    assert page.locator("h1").inner_text().startswith(HOSTILE[1])
    assert page.locator("img").count() == 4  # drawings, and no image of a hostile text
    names = set()
    canvas = page.locator(".chart canvas").first
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    assert box is not None
    for step in range(60):
        page.mouse.move(box["x"] + 100 + step * 17, box["y"] + 2 + 17 * (2.5 + step % 2))
        tip = page.locator("#vg-tooltip-element.visible td.value")
        if tip.count():
            names.add(tip.first.inner_text())
            assert page.locator("#vg-tooltip-element :is(script, img)").count() == 0
    assert HOSTILE[0] in names
    assert HOSTILE[1] in names
    assert watched.console == []


def tooltip_at(page: Page, canvas: Locator, x: float, y: float) -> str:
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + x, box["y"] + y)
    page.mouse.move(box["x"] + x + 1, box["y"] + y)
    tip = page.locator("#vg-tooltip-element.visible")
    tip.wait_for()
    return tip.inner_text()


def test_pointing_at_a_cell_of_a_heat_map_tells_every_run(sample: WatchedPage) -> None:
    page = sample.page
    canvas = page.locator("[data-chart=heat-moves-1] canvas")
    box = canvas.bounding_box()
    assert box is not None
    # The last column, the second of four rows.
    text = tooltip_at(page, canvas, box["width"] - 30, box["height"] - 2.6 * 40)
    assert "4, 5, 6" in text
    assert "from node" in text


def test_pointing_at_a_decision_tells_the_event(sample: WatchedPage) -> None:
    page = sample.page
    canvas = page.locator("[data-chart=task-0] canvas")
    box = canvas.bounding_box()
    assert box is not None
    # The axis begins after 104 pixels of labels and their gap, and ends 12 before the edge.
    left, right = 109.0, box["width"] - 12
    for step in range(-6, 7):
        text = tooltip_at(page, canvas, left + (right - left) * 900 / 5000 + step, 2 + 17 * 0.5)
        if "swap:" in text:
            break
    assert "swap: CPU 2 (node 1) to CPU 6 (node 3), with hog/4" in text
    assert "900.000" in text


def test_a_drawing_for_each_kind_of_flow_can_be_picked(sample: WatchedPage) -> None:
    page = sample.page
    shown = page.locator(".first img:visible")
    first = [image.get_attribute("alt") for image in shown.all()]
    page.locator("button[data-show=migrations]").press("Enter")
    second = [image.get_attribute("alt") for image in shown.all()]
    assert len(first) == len(second) == 2
    assert all("Moves" in (text or "") for text in first)
    assert all("Migrations" in (text or "") for text in second)
    assert page.locator("[data-show=migrations]").get_attribute("aria-pressed") == "true"


@pytest.mark.parametrize("width", [1280, 400])
def test_the_overview_is_quiet_fits_and_copies(browser: Browser, pages: Path, width: int) -> None:
    context = browser.new_context(viewport={"width": width, "height": 900})
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    page = context.new_page()
    said: list[str] = []
    requests: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.goto((pages / "overview.html").as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.locator("button[data-copy=claims-0]").click()
    page.wait_for_function("document.querySelector('[data-copy=claims-0] ~ .said').textContent")
    lines = page.evaluate("navigator.clipboard.readText()").splitlines()
    assert lines[0].split()[:2] == ["cell", "claim"]
    assert len(lines) > 2
    assert said == []
    assert requests == [(pages / "overview.html").as_uri()]
    page.locator("table a").first.click()
    page.wait_for_selector("html[data-ready]")
    assert page.url.endswith("sample.html")
    context.close()


def test_every_control_is_reached_by_the_keyboard_and_named(sample: WatchedPage) -> None:
    page = sample.page
    controls = page.locator("button, a, summary, [tabindex]")
    unnamed = controls.evaluate_all(
        "(all) => all.filter((e) => !(e.textContent.trim() || e.getAttribute('aria-label')))"
        ".map((e) => e.outerHTML.slice(0, 80))"
    )
    assert unnamed == []
    skipped = controls.evaluate_all("(all) => all.filter((e) => e.tabIndex < 0).length")
    assert skipped == 0


def test_the_page_prints_dark_on_white(browser: Browser, pages: Path, tmp_path: Path) -> None:
    context = browser.new_context(color_scheme="dark")
    watched = opened(context, pages / "sample.html")
    page = watched.page
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert contrast(page, "body") > 10
    assert not page.locator(".tools").first.is_visible()
    page.pdf(path=tmp_path / "page.pdf", format="A4")
    assert (tmp_path / "page.pdf").stat().st_size > 20_000
    assert watched.console == []
    context.close()
