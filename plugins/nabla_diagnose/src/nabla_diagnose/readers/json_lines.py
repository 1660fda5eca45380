"""JSON lines: one object per row, as most trackers and hand-made loggers write them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path

from nabla_core.errors import InputError

from .block import Block, blocks_of_rows
from .by_run import run_column, run_of
from .flattening import flat_row
from .lines import read_lines
from .messages import lines_in_items, message_key
from .notes import Notes
from .text_rows import rows_of_lines

__all__ = ["read_blocks", "sniff"]

_SNIFFED_ROWS = 100
_MAX_ROWS = 100_000
_MAX_RUNS = 64


def read_blocks(path: Path, notes: Notes) -> Iterator[Block]:
    """Yield the blocks of a file of JSON lines. A line that is no object is counted.

    Runs or ranks whose rows come in turn are told apart by the key that names them. Objects that
    hold lines of a log in text are read as that log.

    Raises:
        InputError: it cannot be read, or no line is an object.
    """
    first = list(islice(_items(path, Notes()), _SNIFFED_ROWS))
    said = message_key(first)
    if said is not None:
        yield from blocks_of_rows(rows_of_lines(lines_in_items(_items(path, notes), said)))
        return
    key = run_column(first)
    if key is None:
        yield from blocks_of_rows(map(flat_row, _items(path, notes)))
        return
    runs = dict.fromkeys(islice((run_of(item, key) for item in _items(path, notes)), _MAX_ROWS))
    for number, run in enumerate(list(runs)[:_MAX_RUNS]):
        notes.add(f"rows of {key} {run!r} are judged apart")
        rows = (flat_row(item) for item in _items(path, Notes()) if run_of(item, key) == run)
        for index, block in enumerate(blocks_of_rows(rows)):
            yield replace(block, starts_run=number > 0 and index == 0)


def sniff(head: bytes) -> float:
    """Return how surely these first bytes are JSON lines."""
    lines = [line.strip() for line in head.splitlines() if line.strip()]
    if not lines or not lines[0].startswith(b"{"):
        return 0.0
    if len(lines) == 1:
        return 0.4 * _is_object(lines[0])  # a document on one line, rather
    whole = lines[:-1]  # the last one may be cut
    parsed = sum(_is_object(line) for line in whole[:20])
    return 0.9 * parsed / len(whole[:20])


def _is_object(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _items(path: Path, notes: Notes) -> Iterator[Mapping[str, object]]:
    is_any = False
    for line in read_lines(path):
        if not line.strip():
            continue
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            notes.add("a line is no JSON")
            continue
        if isinstance(found, Mapping):
            is_any = True
            yield found
    if not is_any:
        raise InputError(f"{path}: no line is a JSON object")
