"""JSON from files that a stranger may have made: no duplicate keys, no NaN, bounded depth."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import NoReturn, TypeAlias

from ..errors import InputError

__all__ = ["JsonObject", "JsonValue", "StrictJsonError", "dump_json", "parse_json", "parse_object"]

_ENCODER = json.JSONEncoder(separators=(",", ":"), allow_nan=False)

JsonValue: TypeAlias = (
    "None | bool | int | float | str | Sequence[JsonValue] | dict[str, JsonValue]"
)
"""Anything that JSON can say."""

JsonObject: TypeAlias = dict[str, JsonValue]
"""A JSON object."""


class StrictJsonError(InputError):
    """A text is no strict JSON."""


def parse_json(text: bytes | str, what: str) -> JsonValue:
    """Return the value of a JSON text.

    Args:
        text: UTF-8; its size was bounded by whoever read it.
        what: name of the text in errors.

    Raises:
        StrictJsonError: malformed, a key twice in one object, a number that is not finite, or
            nested too deeply for the parser.
    """
    try:
        decoded = text.decode("utf-8") if isinstance(text, bytes) else text
        parsed: JsonValue = _DECODER.decode(decoded)
    except StrictJsonError as error:
        raise StrictJsonError(f"{what}: {error}") from error
    except RecursionError as error:
        raise StrictJsonError(f"{what}: is nested too deeply") from error
    except (ValueError, UnicodeDecodeError) as error:
        raise StrictJsonError(f"{what}: is no JSON: {error}") from error
    return parsed


def parse_object(text: bytes | str, what: str) -> JsonObject:
    """Return the object of a JSON text.

    Raises:
        StrictJsonError: as :func:`parse_json`, or it is no object.
    """
    parsed = parse_json(text, what)
    if not isinstance(parsed, dict):
        raise StrictJsonError(f"{what}: is {type(parsed).__name__}, not an object")
    return parsed


def dump_json(value: JsonValue) -> bytes:
    """Return compact ASCII JSON.

    Raises:
        ValueError: a number in it is not finite.
    """
    return _ENCODER.encode(value).encode("ascii")


def _object(pairs: list[tuple[str, JsonValue]]) -> JsonObject:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise StrictJsonError("has the same key twice in one object")
    return found


def _refuse_constant(word: str) -> NoReturn:
    raise StrictJsonError(f"says {word}, which is no JSON number")


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise StrictJsonError(f"has the number {digits[:40]}, which no float holds")
    return value


# made once: making one for every record of a log would cost more than reading the record
_DECODER = json.JSONDecoder(
    object_pairs_hook=_object, parse_constant=_refuse_constant, parse_float=_finite
)
