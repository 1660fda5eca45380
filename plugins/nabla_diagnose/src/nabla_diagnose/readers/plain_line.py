"""A line of a log in text, freed of what is no measurement: colours, clocks, places in code."""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["has_decimal_commas", "plain_line", "with_decimal_points"]

_MAX_LINE = 8_000
_CLOCK = re.compile(r"\d{4}-\d\d-\d\d[T ]?|\d\d:\d\d:\d\d(?:[.,]\d+)?|\d{1,3}:\d\d<\d{1,3}:\d\d")
_COLOR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_SOURCE = re.compile(
    r"\(?\b[\w./]+:\d+\)?\]?[\s:-]*(?:INFO|WARN(?:ING)?|DEBUG|ERROR)\b|\b[\w.]+:[\w<>]+:\d+\b"
)
_ARROW = re.compile(r"\s*(?:-{1,2}>|=>|→|⇒)\s*")
_TAGGED = re.compile(r"\s*<\w+>(?==)")
_WIDE = str.maketrans("：，；（）［］＝％−", ":,;()[]=%-")
_POINT = re.compile(r"[:=]\s*[+-]?\d*\.\d")
_COMMA = re.compile(r"[:=]\s*[+-]?(?:0,\d+|\d+,(?:\d{1,2}|\d{4,}))(?![\d,])")
_BETWEEN_DIGITS = re.compile(r"(?<=\d),(?=\d)")


def plain_line(line: str) -> str:
    """Return a line without colours, times of the day and places in the code."""
    text = line[:_MAX_LINE]
    if not text.isascii():
        text = text.translate(_WIDE)
    text = _CLOCK.sub(" ", _COLOR.sub("", text).replace("#011", " "))
    text = _SOURCE.sub(" ", text.replace("'s ", " "))  # "training's loss"
    if ">" in text or not text.isascii():
        text = _ARROW.sub(": ", _TAGGED.sub("", text))
    return text


def has_decimal_commas(lines: Iterable[str]) -> bool:
    """Whether these lines spell the numbers of their pairs as ``0,5``, and none as ``0.5``."""
    commas = points = 0
    for line in lines:
        text = _CLOCK.sub(" ", line[:_MAX_LINE])
        commas += len(_COMMA.findall(text))
        points += len(_POINT.findall(text))
    return commas > points == 0


def with_decimal_points(line: str) -> str:
    """Return a line whose decimal commas are points."""
    return _BETWEEN_DIGITS.sub(".", line)
