"""Boxes of names and values, as reinforcement learning libraries print them.

A box stands between two rulers, one pair a line; a name that ends with a slash is the group of
the indented names below it::

    ------------------------------
    | train/           |         |
    |    loss          | 0.132   |
    ------------------------------
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from .block import Block, Row, blocks_of_rows
from .dialect import is_numeric
from .lines import read_lines
from .notes import Notes
from .number import parse_cell

__all__ = ["read_blocks", "sniff"]

_RULER = re.compile(r"\s*-{5,}\s*")
_PAIR = re.compile(r"\s*\|(\s*)([^|]*?)\s*\|\s*([^|]*?)\s*\|\s*")
_SNIFFED_LINES = 200
_SURE = 0.9


def read_blocks(path: Path, notes: Notes) -> Iterator[Block]:
    """Yield the blocks of a log of boxes, one row a box.

    Raises:
        InputError: it cannot be read.
    """
    yield from blocks_of_rows(_rows(path))


def sniff(head: bytes) -> float:
    """Return how surely these first bytes are boxes of names and values."""
    lines = head.decode("utf-8", "replace").splitlines()[:_SNIFFED_LINES]
    rulers = sum(bool(_RULER.fullmatch(line)) for line in lines)
    pairs = [found for line in lines if (found := _PAIR.fullmatch(line))]
    named = [found for found in pairs if found[2] and not is_numeric(found[2])]
    measured = [found for found in named if found[3] and is_numeric(found[3])]
    is_boxed = rulers >= 2 and len(measured) >= 2 and len(named) == len(pairs)
    return _SURE if is_boxed else 0.0


def _rows(path: Path) -> Iterator[Row]:
    row: dict[str, float] = {}
    group = ""
    for line in read_lines(path):
        if _RULER.fullmatch(line):
            if row:
                yield row
            row, group = {}, ""
            continue
        found = _PAIR.fullmatch(line)
        if found is None:
            continue
        indent, name, value = found.groups()
        if not value:
            group = name if name.endswith("/") else ""
        elif is_numeric(value):
            number = parse_cell(value)
            if number is not None:
                row[f"{group}{name}" if len(indent) > 1 else name] = number
    if row:
        yield row
