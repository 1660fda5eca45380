"""Plots as plain values, their way through JSON, and their drawings."""

import json
import math
import re
from dataclasses import replace

import pytest

from nabla_core.errors import InputError, ReportFormatError
from nabla_core.plots import Curves, HeatMap, Ladder, Series, Span, Table, Timeline
from nabla_core.report import Report, Section
from nabla_core.report_reader import read_report
from nabla_core.reporters import console
from nabla_core.reporters import json as json_reporter
from nabla_core.reporters.style import Style
from nabla_core.sampling import CurveSampler, GridSampler
from nabla_report.drawing.axis import Axis
from nabla_report.drawing.draw import draw, thinned


def stored(tmp_path, report):
    path = tmp_path / "report.json"
    path.write_text(json_reporter.render(report, Style()))
    return path


def test_plots_survive_json(tmp_path, plots_of_each_kind):
    section = Section(title="All", lines=("a",), plots=plots_of_each_kind("name"))
    report = Report(sections=(section,))

    again = read_report(stored(tmp_path, report))

    assert again.to_dict() == report.to_dict()
    assert [type(plot) for plot in again.sections[0].plots] == [type(p) for p in section.plots]
    assert math.isnan(again.sections[0].plots[0].series[0].values[1])


@pytest.mark.parametrize(
    "plot",
    [
        {"kind": "curves", "series": [{"name": "a", "at": [1], "values": [1, 2]}]},
        {"kind": "curves", "series": 3},
        {"kind": "curves", "scale": "cubic"},
        {"kind": "heat_map", "rows": ["a"], "columns": ["b"], "values": [[1, 2]]},
        {"kind": "ladder", "rungs": ["a"], "series": [{"name": "a", "at": [7], "values": [1]}]},
        {"kind": "table", "columns": ["a"], "rows": [[{}]]},
        {"kind": "timeline", "spans": [{"start": "soon", "end": 2}]},
        "no object",
    ],
)
def test_damaged_plots_get_a_typed_error(tmp_path, plot):
    path = tmp_path / "report.json"
    section = {"title": "t", "lines": [], "plots": [plot]}
    path.write_text(json.dumps({"schema_version": "1.1", "sections": [section]}))

    with pytest.raises(ReportFormatError):
        read_report(path)


@pytest.mark.parametrize("digits", [400, 5000])
@pytest.mark.parametrize("place", ["at", "evidence", "step"])
def test_numbers_of_too_many_digits_get_a_typed_error(tmp_path, digits, place):
    number = "1" * digits
    path = tmp_path / "report.json"
    issue = {"rule": "A", "severity": "low"}
    series = {"at": ["N"], "values": [1]}
    content = {
        "at": {"sections": [{"plots": [{"kind": "curves", "series": [series]}]}]},
        "evidence": {"issues": [{**issue, "evidence": {"a": "N"}}]},
        "step": {"issues": [{**issue, "step": "N"}]},
    }[place]
    text = json.dumps({"schema_version": "1.1", **content})
    path.write_text(text.replace('"N"', number))

    with pytest.raises(ReportFormatError):
        read_report(path)


def test_a_kind_that_a_newer_version_added_is_left_out(tmp_path):
    path = tmp_path / "report.json"
    section = {"title": "t", "plots": [{"kind": "sphere"}, {"kind": "table", "columns": []}]}
    path.write_text(json.dumps({"schema_version": "1.9", "sections": [section]}))

    assert [type(plot) for plot in read_report(path).sections[0].plots] == [Table]


def test_impossible_shapes_are_refused():
    with pytest.raises(InputError, match="each value needs its place"):
        Series(name="a", at=(1.0,), values=())
    with pytest.raises(InputError, match="needs 1 rows of 1"):
        HeatMap(title="a", rows=("r",), columns=("c",), values=())
    with pytest.raises(InputError, match="whole numbers from 0 to 0"):
        Ladder(title="a", rungs=("r",), series=(Series(name="s", at=(0.5,), values=(1.0,)),))
    with pytest.raises(InputError, match="every row needs 1 cells"):
        Table(title="a", columns=("c",), rows=((1, 2),))


def test_a_terminal_leaves_plots_out(plots_of_each_kind):
    plots = plots_of_each_kind("name")
    text = console.render(
        Report(sections=(Section(title="Hidden", plots=plots), Section(title="T", lines=("l",)))),
        Style(),
    )

    assert "Hidden" not in text and "T\nl" in text


@pytest.mark.parametrize("rows", [0, 1, 7, 511, 512, 513, 3_000, 100_001])
def test_a_sampler_keeps_a_bounded_course_with_its_extremes(rows):
    sampler = CurveSampler(most=512)
    values = [math.sin(step / 50) for step in range(rows)]
    if rows > 3:
        values[rows // 3] = 99.0
    for step, value in enumerate(values):
        sampler.add(step, value)

    series = sampler.series("x")

    assert len(series.at) <= 4 * 512
    assert list(series.at) == sorted(series.at)
    if rows:
        assert max(series.values) == max(values) and min(series.values) == min(values)
        assert series.at[0] == 0 and rows - 1 - series.at[-1] <= rows / 256


def test_a_short_course_is_kept_as_it_is():
    sampler = CurveSampler()
    sampler.extend(range(100), [float(step) for step in range(100)])

    assert sampler.series("x").values == tuple(float(step) for step in range(100))


def test_a_grid_keeps_evenly_spread_columns():
    grid = GridSampler(most=8)
    for step in range(1000):
        grid.add(step, {"a": 1.0, "b": float(step)})

    found = grid.heat_map("t")

    gaps = {int(b) - int(a) for a, b in zip(found.columns, found.columns[1:], strict=False)}
    assert len(gaps) == 1 and len(found.columns) <= 8
    assert found.rows == ("a", "b") and "measurements is shown" in found.note
    assert GridSampler().heat_map("t") is None


EXTREMES = (
    (),
    (0.0,),
    (math.nan, math.inf, -math.inf),
    (1e308, -1e308, 0.0),
    (5e-324, 1e-323),
    (1.0, 1.0, 1.0),
    (-1.0, 0.0),
    (1e-300, 1e300),
)


@pytest.mark.parametrize("values", EXTREMES)
@pytest.mark.parametrize("scale", ["linear", "log", "signed"])
def test_no_number_breaks_a_drawing(values, scale):
    places = tuple(range(len(values)))
    names = tuple(map(str, places))
    series = Series(name="s", at=places, values=values)
    for plot in (
        Curves(title="t", series=(series,), scale=scale),
        Ladder(title="t", rungs=names, series=(series,), scale=scale, limit=1.0),
        HeatMap(
            title="t", rows=names, columns=("c",), values=tuple((v,) for v in values), scale=scale
        ),
        HeatMap(title="t", rows=("r",), columns=names * 9, values=(values * 9,), scale=scale),
        Timeline(title="t", spans=tuple(Span(lane="l", label="x", start=v, end=v) for v in values)),
    ):
        drawn = draw(thinned(plot), ())
        assert re.findall(r' (?:d|x|y|cx|cy|width|height)="[^"]*(?:nan|inf)', drawn.picture) == []


def test_zeros_on_a_logarithmic_scale_are_drawn_on_a_linear_one():
    names, zeros = ("0", "1"), (0.0, 0.0)
    series = Series(name="s", at=(0, 1), values=zeros)
    grid = HeatMap(title="t", rows=names, columns=names, values=(zeros, zeros), scale="log")

    assert thinned(Curves(title="t", series=(series,), scale="log")).scale == "linear"
    assert draw(thinned(grid), ()).caption == "t. 2 by 2 values, all of them 0."
    some = replace(grid, values=(zeros, (0.0, 1.0)))
    assert "blank where zero" in draw(thinned(some), ()).caption


def test_ticks_are_round_and_inside():
    for low, high in ((0.0, 1.0), (-3.0, 17.0), (0.0012, 0.0019), (1e6, 3e6)):
        ticks = Axis(low=low, high=high, start=0.0, stop=1.0).ticks()
        assert 2 <= len(ticks) <= 8
        assert all(low - 1e-9 <= tick <= high + 1e-9 * abs(high) for tick in ticks)


def test_large_plots_are_thinned_and_say_so():
    big = tuple(float(v) for v in range(50_000))
    names = tuple(map(str, range(1000)))
    curves = thinned(Curves(title="t", series=(Series(name="s", at=big, values=big),) * 20))
    grid = thinned(HeatMap(title="t", rows=names, columns=names, values=((1.0,) * 1000,) * 1000))
    series = Series(name="s", at=tuple(range(1000)), values=big[:1000])
    ladder = thinned(Ladder(title="t", rungs=names, series=(series,)))

    assert len(curves.series) == 12 and max(len(s.at) for s in curves.series) <= 4096
    assert len(grid.rows) <= 256 and len(grid.columns) <= 96 and "is shown" in grid.note
    assert len(ladder.rungs) <= 256 and "is shown" in ladder.note


def test_marks_outside_a_curve_are_left_out(report):
    from nabla_report.drawing.frame import Mark

    plot = Curves(title="t", series=(Series(name="s", at=(0, 10), values=(1.0, 2.0)),))
    marks = [Mark(step=step, label="R x", severity="high") for step in (5, 50)]

    assert draw(plot, marks).picture.count('class="mark high"') == 1
    assert draw(replace(plot, x_label="epoch"), marks).picture.count("mark high") == 0


def test_runs_that_are_judged_show_their_course():
    from nabla_core.testing import records
    from nabla_diagnose import lint_records

    report = lint_records(records(loss=[1.0 / (1 + n) for n in range(50)], lr=[0.1] * 50))

    plots = [plot for section in report.sections for plot in section.plots]
    assert [plot.title for plot in plots] == ["Loss", "Learning rate"]
    assert len(plots[0].series[0].at) == 50
