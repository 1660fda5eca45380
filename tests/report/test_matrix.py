"""A small grid of numbers: a table to read, and a plot to look into where JavaScript runs."""

import math

import pytest

from nabla_core.plots import HeatMap
from nabla_core.report import Report, Section
from nabla_report.library import plotting_library
from nabla_report.page.document import page as page_of

LOSSES = ("cross_entropy", "kl", "a_loss_with_a_long_name")
COSINES = ((1.0, -0.93, 0.25), (-0.93, 1.0, None), (0.25, None, 1.0))


@pytest.fixture
def library():
    found = plotting_library()
    if found is None:
        pytest.skip("NO PLOTTING LIBRARY: install bokeh to test interactive plots")
    return found


def matrix(values=COSINES, names=LOSSES, scale="signed"):
    grid = HeatMap(
        title="Conflicts", rows=names, columns=names, values=values, row_label="loss", scale=scale
    )
    return Report(rules_used=("ACM101",), sections=(Section(title="Losses", plots=(grid,)),))


def live(page):
    figure = page.locator("figure[data-plot]")
    figure.scroll_into_view_if_needed()
    figure.locator("xpath=self::*[contains(@class,'is-live')]").wait_for(timeout=15_000)
    return figure


def test_it_is_a_plot_with_its_numbers_below(opened, library):
    page = opened(page_of(matrix(), library))

    figure = live(page)

    assert figure.locator(".static:visible").count() == 0
    assert page.evaluate(DRAWN) == [["1", "-0.93", "0.25", "-0.93", "1", "0.25", "1"]]
    figure.get_by_text("Numbers").click()
    assert figure.locator(".twin td").all_inner_texts() == [
        "1", "-0.93", "0.25", "-0.93", "1", "not measured", "0.25", "not measured", "1",
    ]  # fmt: skip
    assert page.noise == []


DRAWN = """() => Bokeh.documents.flatMap((document) => document.roots())
  .flatMap((figure) => figure.renderers).map((renderer) => renderer.data_source.data.text)
  .filter((text) => text).map((text) => [...text])"""


def test_values_are_told_under_the_pointer(opened, library):
    page = opened(page_of(matrix(), library))
    live(page)
    box = page.locator(".bk-Canvas").bounding_box()

    page.mouse.move(box["x"] + 190, box["y"] + 20)
    page.mouse.move(box["x"] + 200, box["y"] + 24, steps=3)

    page.get_by_text("value:").first.wait_for(timeout=10_000)
    assert page.noise == []


def test_without_javascript_the_table_is_shown_once(opened, library):
    page = opened(page_of(matrix(), library), java_script_enabled=False)

    assert page.locator("figure td:visible").count() == 9
    assert page.locator(".twin:visible, .live:visible").count() == 0


def test_printed_it_is_the_table(opened, library):
    page = opened(page_of(matrix(), library))
    live(page)

    page.emulate_media(media="print")

    assert page.locator("figure td:visible").count() == 9
    assert page.locator(".twin:visible, .live:visible").count() == 0


@pytest.mark.parametrize(
    ("values", "scale"),
    [
        (((0.5,),), "signed"),
        (((0.0,),), "signed"),
        (((0.0,),), "log"),
        (((-2.0,),), "log"),
        (((math.nan,),), "linear"),
        (((math.inf,),), "log"),
        (((1e308,),), "linear"),
        (((5e-324,),), "log"),
        (((None,),), "signed"),
    ],
)
def test_no_number_breaks_the_plot(opened, library, values, scale):
    page = opened(page_of(matrix(values, ("only",), scale), library))

    live(page)

    assert page.noise == []


def test_twelve_losses_fit_into_a_narrow_window(opened, library):
    names = tuple(f"loss_number_{number}" for number in range(12))
    values = tuple(tuple(math.cos(row - column) for column in range(12)) for row in range(12))
    page = opened(page_of(matrix(values, names), library), viewport={"width": 400, "height": 800})

    live(page)

    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    assert page.noise == []
