"""What every drawing shares: its size, ticks and grid, and the figure around it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..markup import Html, join, raw, tag
from .axis import Axis, number_label

__all__ = ["WIDTH", "Drawing", "Mark", "bottom_ticks", "shortened", "svg"]

WIDTH = 760.0
"""Pixels of a drawing; it is scaled to the page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A step at which an issue was found."""

    step: float
    label: str
    severity: str

    def to_dict(self) -> dict[str, object]:
        """Return a JSON-safe mapping."""
        return {"step": self.step, "label": self.label, "severity": self.severity}


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """A plot as HTML.

    Attributes:
        picture: the drawing.
        caption: what it shows, in words.
        headings: of the table with the numbers.
        rows: of the table with the numbers.
        shows_numbers: they can be read in the picture; the table is for who sees a plot instead.
        is_table: there is nothing but cells, so that no script need draw it again.
    """

    picture: Html
    caption: str
    headings: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    shows_numbers: bool = False
    is_table: bool = False


def svg(height: float, caption: str, *parts: Html) -> Html:
    """Return a drawing with a name that a screen reader says."""
    return tag(
        "svg",
        *parts,
        viewBox=f"0 0 {WIDTH:g} {height:g}",
        role="img",
        aria_label=caption,
        class_="drawing",
        preserveAspectRatio="xMidYMid meet",
    )


def bottom_ticks(axis: Axis, top: float, bottom: float, label: str = "") -> Html:
    """Return the grid and the numbers of an axis along the bottom."""
    parts = []
    ticks = axis.ticks()
    if label == "step":  # there is no step between two steps
        ticks = [tick for tick in ticks if tick == round(tick)] or ticks
    for tick in ticks:
        x = f"{axis.at(tick):.1f}"
        parts.append(raw(f'<path class="grid" d="M{x} {top:.1f}V{bottom:.1f}"/>'))
        parts.append(
            tag("text", number_label(tick), x=x, y=f"{bottom + 16:.1f}", text_anchor="middle")
        )
    if label:
        x_middle = f"{(axis.start + axis.stop) / 2:.1f}"
        parts.append(tag("text", label, x=x_middle, y=f"{bottom + 32:.1f}", text_anchor="middle"))
    return join(parts)


def shortened(label: str, most: int = 24) -> str:
    """Return the end of a long name: the end tells layers apart."""
    return label if len(label) <= most else f"…{label[-most + 1 :]}"
