"""Logs in running text: lines with ``key: value``, ``key=value`` or ``key value`` pairs.

A line counts as a row if it has a number under a name that means a loss, a learning rate or a
known metric. Lines that begin with the rank of the process that wrote them are told apart by it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

from nabla_core.errors import InputError

from .block import Block, blocks_of_rows
from .by_run import come_in_turn
from .lines import read_lines
from .notes import Notes
from .plain_line import has_decimal_commas, plain_line, with_decimal_points
from .text_line import is_measured, places_of, row_of_line
from .text_rows import rows_of_lines

__all__ = ["read_blocks", "sniff"]

_SNIFFED_LINES = 400
_MAX_RANKS = 64
_RANK = re.compile(
    r"\s*(?:\[(?:rank|default|gpu|worker)?[ :=_-]?(\d{1,4})\]\s*:?|(?:rank|gpu)[ :=_-]?(\d{1,4})\b"
    r"\s*[:|-]?|(\d{1,4}):)\s",
    re.IGNORECASE,
)


def read_blocks(path: Path, notes: Notes) -> Iterator[Block]:
    """Yield the blocks of a text log. Lines without a measurement are passed over.

    Raises:
        InputError: it cannot be read, or no line measures anything.
    """
    first = list(islice(read_lines(path), _SNIFFED_LINES))
    commas = has_decimal_commas(first)
    ranks = _ranks(first)
    for number, rank in enumerate(ranks or [""]):
        if ranks:
            notes.add(f"lines of rank {rank} are judged apart")
        lines = _lines_of(path, rank)
        rows = rows_of_lines(map(with_decimal_points, lines) if commas else lines)
        index = -1
        for index, block in enumerate(blocks_of_rows(rows)):
            yield replace(block, starts_run=number > 0 and index == 0)
        if index < 0 and not ranks:
            raise InputError("no line has a loss, a learning rate or a known metric with a number")


def sniff(head: bytes) -> float:
    """Return how surely these first bytes are a log in text with measurements."""
    lines = [line for line in head.decode("utf-8", "replace").splitlines() if line.strip()]
    measured = sum(is_measured(row_of_line(line)) for line in lines[:_SNIFFED_LINES])
    return 0.0 if not measured else min(0.5, 0.2 + measured / 20)


def _ranks(lines: Iterable[str]) -> list[str]:
    """Return the ranks that measure the same steps in turn; none where only one does."""
    said: list[str] = []
    told: dict[str, set[tuple[float, ...]]] = {}
    for line in lines:
        rank = _rank_of(line)
        row = row_of_line(_without_rank(line)) if rank else {}
        if is_measured(row):
            said.append(rank)
            told.setdefault(rank, set()).add(tuple(row[name] for name in places_of(row)))
    shared = set.intersection(*told.values()) if told else set()
    return list(told)[:_MAX_RANKS] if come_in_turn(said) and any(shared) else []


def _rank_of(line: str) -> str:
    found = _RANK.match(plain_line(line))
    return next(filter(None, found.groups()), "") if found else ""


def _lines_of(path: Path, rank: str) -> Iterator[str]:
    """Yield the lines of a rank, without it; all lines where none is given."""
    for line in read_lines(path):
        if not rank:
            yield line
        elif _rank_of(line) == rank:
            yield _without_rank(line)


def _without_rank(line: str) -> str:
    return _RANK.sub("", plain_line(line), count=1)
