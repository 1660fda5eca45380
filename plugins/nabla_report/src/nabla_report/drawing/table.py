"""A table of cells; the page sorts it by a column when JavaScript runs."""

from __future__ import annotations

from nabla_core.plots import Cell, Table
from nabla_core.reporters.style import counted

from ..markup import Html, tag
from .axis import number_label
from .frame import Drawing

__all__ = ["draw_table"]

_MOST_ROWS = 200


def draw_table(plot: Table) -> Drawing:
    """Return the table, or its first rows."""
    head = tag("tr", *[tag("th", name, scope="col") for name in plot.columns])
    rows = [tag("tr", *map(_cell, row)) for row in plot.rows[:_MOST_ROWS]]
    title = tag("caption", plot.title, class_="unseen")
    table = tag("table", title, tag("thead", head), tag("tbody", *rows), class_="sortable")
    hidden = len(plot.rows) - len(rows)
    caption = counted(len(plot.rows), "row") + (
        f", of which {hidden} are not shown." if hidden else "."
    )
    picture = tag("div", table, class_="scroll", tabindex=0, role="group", aria_label=plot.title)
    return Drawing(picture=picture, caption=caption, is_table=True)


def _cell(cell: Cell) -> Html:
    if cell is None:
        return tag("td", "not measured", class_="absent")
    if isinstance(cell, bool):
        return tag("td", "yes" if cell else "no")
    if isinstance(cell, (int, float)):
        return tag("td", str(cell) if isinstance(cell, int) else number_label(cell),
                   class_="number")  # fmt: skip
    return tag("td", cell)
