"""Numbers as people and trackers spell them."""

from __future__ import annotations

import math
import re

__all__ = ["parse_cell", "parse_number"]

_ABSENT = frozenset({"", "-", "--", "na", "n/a", "null", "none", "<na>", "undefined", "#n/a", "?"})
_NAN = re.compile(r"[+-]?(nan(\([^)]*\))?|1\.#(ind|qnan|snan)\d*)")
_INF = re.compile(r"([+-]?)(inf|infinity|1\.#inf\d*|∞)")
_WRAPPED = re.compile(r"(?:tensor|array|float\d*|np\.float\d*|numpy\.float\d*)\(\[?([^,\])]+).*\)")
_THOUSANDS = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d*)?([eE][+-]?\d+)?")
_DECIMAL_COMMA = re.compile(r"[+-]?\d*,\d+([eE][+-]?\d+)?")
_WITH_UNIT = re.compile(
    r"([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*"
    r"(?:s|ms|us|µs|ns|sec|secs|seconds|min|h|hours|it/s|s/it|nats|bits|[KMGT]i?B|dB|steps|px)"
)
_FORTRAN = re.compile(r"[+-]?\d*\.\d*[dD][+-]?\d+")
_MAX_LENGTH = 200


def parse_number(text: str) -> float:
    """Return the number that ``text`` spells.

    Understood are ``1e-3``, ``1,234.5``, ``0,5`` (decimal comma), ``12%`` (0.12), ``nan`` and the
    infinities in any usual spelling, a printed tensor or array of one element, and a number with a
    usual unit (``3.5 ms`` is 3.5).

    Raises:
        ValueError: it is no number.
    """
    try:
        return float(text)
    except ValueError:
        return _odd_number(text.strip().strip("'\"").strip())


def parse_cell(text: str) -> float | None:
    """Return the number of a table cell, or ``None`` where nothing was logged.

    Raises:
        ValueError: the cell holds a text.
    """
    stripped = text.strip()
    if stripped.lower() in _ABSENT:
        return None
    return parse_number(stripped)


def _odd_number(text: str) -> float:
    if not text or len(text) > _MAX_LENGTH:
        raise ValueError("no number")
    lower = text.lower()
    if _NAN.fullmatch(lower):
        return math.nan
    infinite = _INF.fullmatch(lower)
    if infinite:
        return -math.inf if infinite[1] == "-" else math.inf
    wrapped = _WRAPPED.fullmatch(lower)
    if wrapped:
        return parse_number(wrapped[1])
    measured = _WITH_UNIT.fullmatch(text)
    if measured:
        return float(measured[1])
    if text.endswith("%"):
        return parse_number(text[:-1]) / 100
    if _THOUSANDS.fullmatch(text):
        return float(text.replace(",", ""))
    if _DECIMAL_COMMA.fullmatch(text):
        return float(text.replace(",", "."))
    if _FORTRAN.fullmatch(text):
        return float(text.replace("D", "e").replace("d", "e"))
    return float(text.replace("−", "-"))  # a typographic minus sign
