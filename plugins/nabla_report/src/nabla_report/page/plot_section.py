"""The plots of a report: each as a figure with a drawing, a caption and the numbers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from nabla_core.plots import Plot, Span, Timeline
from nabla_core.report import Report, Section

from ..drawing.draw import draw, thinned
from ..drawing.frame import Drawing, Mark
from ..markup import Html, join, raw, tag
from ..text import inline, place

__all__ = ["plot_data", "plot_sections"]

_MOST_MARKS = 40
_MOST_PLOTS = 40


class PlotBook:
    """The figures of a page, and what a script needs to draw them again."""

    def __init__(self, report: Report) -> None:
        self.marks = _marks(report)
        self.steps = report.run.steps
        self.data: list[dict[str, object]] = []

    def figure(self, plot: Plot, group: int) -> Html:
        """Return one figure."""
        shown = thinned(plot)
        reach = self._reach(shown)
        drawing = draw(shown, self.marks, reach)
        name = f"plot-{len(self.data)}"
        interactive = not drawing.is_table
        data = {"group": group, **shown.to_dict(), **({"reach": list(reach)} if reach else {})}
        self.data.append(data if interactive else {})
        parts = [
            tag("h3", shown.title, id=f"{name}-title"),
            tag("div", drawing.picture, class_="static"),
        ]
        if interactive:
            parts.append(tag("div", class_="live", hidden=True, role="img",
                             aria_label=drawing.caption))  # fmt: skip
        parts.append(_caption(drawing, shown.note))
        return tag(
            "figure",
            *parts,
            id=name,
            class_="plot",
            aria_labelledby=f"{name}-title",
            data_plot=str(len(self.data) - 1) if interactive else None,
        )

    def _reach(self, plot: Plot) -> tuple[float, ...]:
        """First and last step of the run, if a timeline counts them: when, seen in the whole.

        Steps beyond those that were seen are numbered by the program: where it began is not known.
        """
        if not isinstance(plot, Timeline) or plot.x_label != "step":
            return ()
        edges = [edge for one in plot.spans for edge in (one.start, one.end)]
        last = self.steps - 1 if self.steps else max(edges, default=0)
        inside = all(0 <= edge <= last for edge in edges)
        return (0, last) if inside and last > 0 else ()


def plot_sections(report: Report) -> tuple[Html, PlotBook]:
    """Return the sections that plugins added, the timeline of the issues, and their data."""
    book = PlotBook(report)
    parts = []
    room = _MOST_PLOTS
    for number, section in enumerate(report.sections):
        parts.append(_section(section, number, book, room))
        room = max(0, room - len(section.plots))
    for section in _issue_timeline(report):
        parts.append(_section(section, len(report.sections), book, 1))
    return join(parts), book


def plot_data(book: PlotBook) -> str:
    """Return the plots as JSON that cannot end the element it stands in."""
    content = {"plots": book.data, "marks": [mark.to_dict() for mark in book.marks]}
    text = json.dumps(content, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _section(section: Section, number: int, book: PlotBook, room: int) -> Html:
    name = f"section-{number}"
    figures = [book.figure(plot, number) for plot in section.plots[:room]]
    left = len(section.plots) - len(figures)
    lines = tag("pre", "\n".join(section.lines)) if section.lines else raw("")
    note = tag("p", f"{left} further plots are in the JSON report.") if left else raw("")
    return tag(
        "section",
        tag("h2", section.title, id=f"{name}-title"),
        lines,
        *figures,
        note,
        id=name,
        aria_labelledby=f"{name}-title",
    )


def _caption(drawing: Drawing, note: str) -> Html:
    parts = [drawing.caption]
    if note:
        parts.append(f" {note[0].upper()}{note[1:]}.")
    if not drawing.rows:
        return tag("figcaption", *parts)
    head = tag("tr", *[tag("th", name, scope="col") for name in drawing.headings])
    rows = [
        tag("tr", tag("th", row[0], scope="row"), *[tag("td", c, class_="number") for c in row[1:]])
        for row in drawing.rows
    ]
    table = tag("table", tag("thead", head), tag("tbody", *rows))
    numbers = tag("div", table, class_="scroll", tabindex=0, role="region", aria_label="Numbers")
    look = "twin" if drawing.shows_numbers else None  # not twice: only beside an interactive plot
    details = tag("details", tag("summary", "Numbers"), numbers, class_=look)
    return tag("figcaption", *parts, details)


def _marks(report: Report) -> Sequence[Mark]:
    found = [
        Mark(step=issue.step, label=inline(f"{issue.rule} {issue.name} {place(issue)}"),
             severity=issue.severity.label)
        for issue in sorted(report.issues, key=lambda issue: -issue.severity)
        if issue.step is not None
    ]  # fmt: skip
    return found[:_MOST_MARKS]


def _issue_timeline(report: Report) -> Iterator[Section]:
    spans = [
        Span(
            lane=issue.name,
            label=f"{issue.rule} {place(issue)}".strip(),
            start=issue.step,
            end=issue.step if issue.last_step is None else issue.last_step,
            severity=issue.severity,
        )
        for issue in report.issues
        if issue.step is not None
    ]
    if spans:
        timeline = Timeline(title="Issues over steps", spans=tuple(spans))
        yield Section(title="Timeline", plots=(timeline,))
