"""The page in a real browser."""

from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from nabla_core.plots import HeatMap
from nabla_core.report import Section
from nabla_report.library import plotting_library
from nabla_report.page.document import page as page_of
from nabla_report.page.notebook import embed


@pytest.fixture
def library():
    found = plotting_library()
    if found is None:
        pytest.skip("NO PLOTTING LIBRARY: install bokeh to test interactive plots")
    return found


def scroll_through(page):
    for figure in page.locator("figure[data-plot]").all():
        figure.scroll_into_view_if_needed()
        figure.locator("xpath=self::*[contains(@class,'is-live')]").wait_for(timeout=15_000)


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.slow)])
def test_all_plots_come_alive_without_error_or_request(opened, report, library, scheme):
    page = opened(page_of(report, library), color_scheme=scheme)

    scroll_through(page)

    assert page.locator("figure.is-live").count() == page.locator("figure[data-plot]").count() == 6
    assert page.locator("figure.is-live .static:visible").count() == 0
    assert page.noise == []


def test_issues_are_filtered_by_severity_and_by_words(opened, report):
    page = opened(page_of(report, None))
    shown = page.locator(".issue:visible")
    assert shown.count() == 3

    page.get_by_role("checkbox", name="medium").uncheck()
    assert shown.count() == 2
    assert page.get_by_role("status").inner_text() == "2 of 3 shown"

    page.get_by_label("Find in issues").fill("loss head")
    assert shown.count() == 1

    page.get_by_label("Find in issues").fill("nothing like it")
    assert shown.count() == 0
    assert page.noise == []


def test_issues_open_and_close_by_mouse_and_by_keyboard(opened, report):
    page = opened(page_of(report, None))
    opened_issues = page.locator(".issue > details[open]")
    assert opened_issues.count() == 3

    page.get_by_role("button", name="Close all").click()
    assert opened_issues.count() == 0

    page.locator(".issue summary").first.focus()
    page.keyboard.press("Enter")
    assert opened_issues.count() == 1


def test_a_link_to_a_hidden_issue_shows_it(opened, report):
    page = opened(page_of(report, None))
    page.get_by_label("Find in issues").fill("nothing like it")

    page.locator("#causes .chain a").first.click()

    page.locator(".issue:visible").wait_for(timeout=15_000)  # the page hears of it a little later
    assert page.locator(".issue:visible").count() == 1


def test_tables_are_sorted_by_their_heads(opened, report):
    page = opened(page_of(report, None))
    head = page.locator("table.sortable th").first

    head.get_by_role("button").click()
    assert head.get_attribute("aria-sort") == "ascending"
    head.get_by_role("button").click()
    assert head.get_attribute("aria-sort") == "descending"


def test_all_is_readable_without_javascript(opened, report, library):
    page = opened(page_of(report, library), java_script_enabled=False)

    for words in ("1 high, 1 medium, 1 info", "The weights grew until", "Mend it.", "needs lr"):
        assert words in page.locator("body").text_content()
    assert page.locator("#filter:visible").count() == 0
    assert page.locator("figure .static svg:visible").count() == 6
    assert page.noise == []


def test_hostile_names_are_inert(opened, poisoned, hostile_names, library):
    page = opened(page_of(poisoned(*hostile_names), library))
    for kind in range(3):
        figure = page.locator(f"#plot-{kind}")
        figure.scroll_into_view_if_needed()
        figure.locator("xpath=self::*[contains(@class,'is-live')]").wait_for(timeout=15_000)
    page.get_by_label("Find in issues").fill("<script>")

    assert page.evaluate("window.pwned") is None
    assert page.title().startswith("nabla: ")
    assert page.noise == []


def test_a_notebook_shows_the_page_in_a_frame(opened, report):
    page = opened(f"<!DOCTYPE html><title>t</title><body>{embed(report)}")

    frame = page.frame_locator("iframe")
    assert "1 high" in frame.locator("#verdict").inner_text()
    assert frame.locator("#filter").is_visible()
    assert page.noise == []


@pytest.mark.slow
def test_a_long_run_loads_in_five_times_an_empty_page_with_the_library(opened, long_run, library):
    empty = page_of(type(long_run)(), None).replace(
        "</body>", f'<script type="text/plain">{library.packed}</script></body>'
    )
    ratios = []
    for _ in range(5):
        times = [load_ms(opened(text)) for text in (page_of(long_run, library), empty)]
        ratios.append(times[0] / times[1])

    assert sorted(ratios)[2] <= 5.0


def load_ms(page):
    return page.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd")


@pytest.mark.slow
def test_printing_shows_the_drawings(opened, report, library):
    page = opened(page_of(report, library))
    scroll_through(page)

    page.emulate_media(media="print")

    assert page.locator("figure .static svg:visible").count() == 6
    assert page.locator(".live:visible").count() == 0
    assert page.locator("nav:visible, #filter:visible").count() == 0


def test_a_plot_shows_values_and_is_zoomed_with_those_of_its_section(opened, report, library):
    course = replace(report.sections[0], plots=(report.sections[0].plots[0],) * 2)
    page = opened(page_of(replace(report, sections=(course,)), library))
    scroll_through(page)
    page.locator("#plot-0").scroll_into_view_if_needed()
    box = page.locator("#plot-0 .bk-Canvas").bounding_box()
    left, top = box["x"] + 150, box["y"] + 60

    page.mouse.move(left - 20, top - 10)
    page.mouse.move(left, top, steps=3)
    page.get_by_text("value:").first.wait_for(timeout=10_000)

    page.mouse.down()
    page.mouse.move(left + 200, top + 60, steps=5)
    page.mouse.up()
    ranges = page.evaluate(RANGES)
    assert ranges[0] == ranges[1]
    assert ranges[0][1] - ranges[0][0] < 60
    assert page.noise == []


RANGES = """() => Bokeh.documents.flatMap((document) => document.roots())
  .filter((figure) => figure.x_range && figure.below[0].axis_label === "step").slice(0, 2)
  .map((figure) => [figure.x_range.start, figure.x_range.end])"""


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.slow)])
def test_axe_finds_no_barrier(opened, report, library, scheme):
    spec = find_spec("axe_playwright_python")
    if spec is None:
        pytest.skip("NO AXE: install axe-playwright-python, which ships axe-core")
    is_live = scheme == "dark"
    shown = page_of(report, library if is_live else None)
    page = opened(shown, color_scheme=scheme, bypass_csp=True)
    if is_live:
        scroll_through(page)

    page.evaluate((Path(spec.origin).parent / "axe.min.js").read_text())

    found = page.evaluate("axe.run()")["violations"]
    assert [f"{one['id']}: {one['nodes'][0]['html']}" for one in found] == []


TORN = """() => [...document.querySelectorAll("td.number, thead th")].filter((cell) =>
  cell.checkVisibility() && /^\\S+$/.test(cell.textContent)
  && cell.getBoundingClientRect().height > 2.2 * parseFloat(getComputedStyle(cell).lineHeight)
  && !cell.parentElement.querySelector("td.words")
).map((cell) => cell.textContent)"""


def test_a_narrow_window_tears_no_number_and_scrolls_tables_alone(opened, report):
    wide = tuple(tuple(1e-9 * (row + column + 1) for column in range(12)) for row in range(12))
    names = tuple(f"model.block.{number}" for number in range(12))
    grid = HeatMap(title="Wide", rows=names, columns=names, values=wide, row_label="layer")
    long_text = replace(report.issues[0], evidence={"path": "one 1.0 two; " * 30, "loss": 0.25})
    shown = replace(report, issues=(long_text,), sections=(Section(title="S", plots=(grid,)),))
    page = opened(page_of(shown, None), viewport={"width": 400, "height": 800})

    assert page.evaluate(TORN) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= 400


CONTRAST = """() => {
  const parse = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((v) => v / 255)
    .map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = (element) => {
    for (let e = element; e; e = e.parentElement) {
      const c = parse(getComputedStyle(e).backgroundColor);
      if (c.length === 3 || c[3] > 0) return c;
    }
    return [255, 255, 255];
  };
  const poor = [];
  for (const e of document.querySelectorAll("body *")) {
    const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (!own || e.closest("svg") || ["SCRIPT", "STYLE"].includes(e.tagName)) continue;
    if (!e.checkVisibility()) continue;
    const [a, b] = [light(parse(getComputedStyle(e).color)), light(ground(e))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) poor.push(`${e.tagName}.${e.className} ${ratio.toFixed(2)}`);
  }
  return poor;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_enough_contrast(opened, report, scheme):
    page = opened(page_of(report, None), color_scheme=scheme)

    assert page.evaluate(CONTRAST) == []
