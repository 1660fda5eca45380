"""Logs in text whose lines are wrapped: one field of each JSON object, or one column of a table.

So collectors of logs write them: the fields beside tell the time and the machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from .flattening import flat_row
from .naming import plain_name
from .text_line import is_measured, row_of_line

__all__ = ["lines_in_items", "message_column", "message_key"]

_NAMES = frozenset({"message", "msg", "log", "text", "line", "text payload", "log message"})


def message_key(items: Iterable[Mapping[str, object]]) -> str | None:
    """Return the key of objects under which there is a log in text.

    ``None`` where the objects hold measurements themselves, or none do.
    """
    found = None
    for item in items:
        if is_measured(flat_row(item)):
            return None
        for key, said in item.items():
            is_text = plain_name(key) in _NAMES and isinstance(said, str)
            if found is None and is_text and is_measured(row_of_line(str(said))):
                found = key
    return found


def lines_in_items(items: Iterable[Mapping[str, object]], key: str) -> Iterator[str]:
    """Yield the lines of a log in text that is told under a key."""
    for item in items:
        yield from str(item.get(key, "")).splitlines()


def message_column(names: Sequence[str], rows: Iterable[Sequence[str]]) -> int | None:
    """Return the place of the column of a table that is a log in text, if one is."""
    if is_measured(dict.fromkeys(names, 0.0)):
        return None
    places = [place for place, name in enumerate(names) if plain_name(name) in _NAMES]
    for row in rows:
        for place in places:
            if place < len(row) and is_measured(row_of_line(row[place])):
                return place
    return None
