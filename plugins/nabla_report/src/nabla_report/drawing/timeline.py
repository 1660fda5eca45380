"""What happened when, in lanes, as SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence

from nabla_core.plots import Span, Timeline

from ..markup import Html, join, raw, tag
from .axis import Axis, number_label
from .frame import WIDTH, Drawing, bottom_ticks, shortened, svg

__all__ = ["draw_timeline"]

_LEFT, _RIGHT, _TOP, _LANE = 180.0, WIDTH - 14.0, 8.0, 22.0
_MOST_LANES, _MOST_SPANS, _MOST_ROWS = 40, 400, 100


def draw_timeline(plot: Timeline, reach: Sequence[float] = ()) -> Drawing:
    """Return the lanes with a bar per span, and a dot per moment; the x axis holds ``reach``."""
    spans = [span for span in plot.spans if math.isfinite(span.start) and math.isfinite(span.end)]
    lanes = list(dict.fromkeys(span.lane for span in spans))[:_MOST_LANES]
    shown = [span for span in spans if span.lane in set(lanes)][:_MOST_SPANS]
    edges = [edge for span in shown for edge in (span.start, span.end)]
    x = Axis.over((*edges, *reach), (_LEFT, _RIGHT))
    bottom = _TOP + _LANE * max(1, len(lanes))
    several = "" if len(plot.spans) == 1 else "s"
    caption = f"{plot.title}. {len(plot.spans)} event{several}."
    picture = svg(
        bottom + 40,
        caption,
        bottom_ticks(x, _TOP, bottom, plot.x_label),
        _lane_labels(lanes),
        *[_span(span, lanes.index(span.lane), x) for span in shown],
    )
    rows = [
        (span.lane, span.label, number_label(span.start), number_label(span.end))
        for span in shown[:_MOST_ROWS]
    ]
    return Drawing(
        picture=picture,
        caption=caption,
        headings=("what", "event", f"first {plot.x_label}", f"last {plot.x_label}"),
        rows=rows,
    )


def _lane_labels(lanes: list[str]) -> Html:
    return join(
        tag("text", shortened(lane), x=_LEFT - 8, y=f"{_TOP + _LANE * (index + 0.5) + 4:.1f}",
            text_anchor="end")
        for index, lane in enumerate(lanes)
    )  # fmt: skip


def _span(span: Span, lane: int, x: Axis) -> Html:
    middle = _TOP + _LANE * (lane + 0.5)
    left, right = x.at(min(span.start, span.end)), x.at(max(span.start, span.end))
    if right - left < 3.0:
        shape = f'<circle cx="{left:.1f}" cy="{middle:.1f}" r="5"/>'
    else:
        shape = (
            f'<rect x="{left:.1f}" y="{middle - 5:.1f}" width="{right - left:.1f}" height="10" '
            'rx="3"/>'
        )
    when = number_label(span.start)
    if span.end != span.start:
        when = f"{when} to {number_label(span.end)}"
    severity = "none" if span.severity is None else span.severity.label
    return tag("g", tag("title", f"{span.label}, {when}"), raw(shape), class_=f"span {severity}")
