"""Nested mappings of a JSON row to one level of numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from .naming import AXES, Split, name_of, split_of
from .number import parse_cell

__all__ = ["flat_row"]

_MAX_DEPTH = 6
_MAX_KEYS = 20_000
_PHASES = ("phase", "split", "mode", "stage", "subset", "set")


def flat_row(item: Mapping[str, object]) -> dict[str, float]:
    """Return the numbers of one JSON object; ``{"train": {"loss": 1}}`` gives ``train.loss``.

    ``null`` is absent; numbers in text count. A text under ``phase``, ``split`` or ``mode`` that
    means training, validation or test becomes part of the names.
    """
    prefix = ""
    for key in _PHASES:
        said = item.get(key)
        if isinstance(said, str) and split_of(said) is not Split.UNSAID:
            prefix = f"{split_of(said).value}_"
            break
    row: dict[str, float] = {}
    for name, value in _numbers(item, "", 0):
        if len(row) >= _MAX_KEYS:
            break
        row[name if not prefix or name_of(name).quantity in AXES else prefix + name] = value
    return row


def _numbers(item: Mapping[str, object], prefix: str, depth: int) -> Iterator[tuple[str, float]]:
    for key, value in item.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            if depth < _MAX_DEPTH:
                yield from _numbers(value, f"{name}.", depth + 1)
        elif isinstance(value, bool) or value is None:
            continue
        elif isinstance(value, (int, float)):
            yield name, _as_float(value)
        elif isinstance(value, str):
            number = _spelled(value)
            if number is not None:
                yield name, number
        elif isinstance(value, list) and len(value) == 1 and isinstance(value[0], (int, float)):
            yield name, _as_float(value[0])


def _as_float(value: int | float) -> float:
    try:
        return float(value)
    except OverflowError:  # an integer of hundreds of digits
        return float("inf") if value > 0 else float("-inf")


def _spelled(text: str) -> float | None:
    try:
        return parse_cell(text)
    except ValueError:
        return None
