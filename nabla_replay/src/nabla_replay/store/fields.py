"""Taking typed values out of JSON that a stranger may have written."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping

from nabla_core.artifacts.strict_json import JsonObject, JsonValue

from ..errors import RecordError

__all__ = [
    "take_bytes",
    "take_count",
    "take_float",
    "take_list",
    "take_object",
    "take_text",
    "take_texts",
]

_MOST_BITS = 63  # what counts or measures something in a file fits into them


def take_text(body: JsonObject, key: str) -> str:
    """Return the string under ``key``.

    Raises:
        RecordError: it is missing or no string.
    """
    value = body.get(key)
    if not isinstance(value, str):
        raise RecordError(f"{key!r} is {_kind(value)}, not a string")
    return value


def take_count(body: JsonObject, key: str) -> int:
    """Return the integer of at least 0 under ``key``.

    Raises:
        RecordError: it is missing, no integer, negative, or has more than 63 bits.
    """
    value = body.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise RecordError(f"{key!r} is {_kind(value)}, not an integer of at least 0")
    if value.bit_length() > _MOST_BITS:
        raise RecordError(f"{key!r} has {value.bit_length()} bits, at most {_MOST_BITS} are read")
    return value


def take_float(body: JsonObject, key: str) -> float:
    """Return the float that was written as ``float.hex()`` under ``key``.

    Raises:
        RecordError: it is missing or no such text.
    """
    text = take_text(body, key)
    try:
        return float.fromhex(text)
    except (ValueError, OverflowError) as error:
        raise RecordError(f"{key!r} is {text[:40]!r}, not a hexadecimal float") from error


def take_bytes(body: JsonObject, key: str) -> bytes:
    """Return the bytes that were written as base64 under ``key``.

    Raises:
        RecordError: it is missing or no base64.
    """
    try:
        return base64.b64decode(take_text(body, key), validate=True)
    except binascii.Error as error:
        raise RecordError(f"{key!r} is no base64: {error}") from error


def take_object(body: JsonObject, key: str) -> JsonObject:
    """Return the object under ``key``; empty if it is missing.

    Raises:
        RecordError: it is something else.
    """
    value = body.get(key, {})
    if not isinstance(value, dict):
        raise RecordError(f"{key!r} is {_kind(value)}, not an object")
    return value


def take_list(body: JsonObject, key: str) -> list[JsonValue]:
    """Return the list under ``key``.

    Raises:
        RecordError: it is missing or no list.
    """
    value = body.get(key)
    if not isinstance(value, list):
        raise RecordError(f"{key!r} is {_kind(value)}, not a list")
    return value


def take_texts(body: JsonObject, key: str) -> Mapping[str, str]:
    """Return the object of strings under ``key``; empty if it is missing.

    Raises:
        RecordError: it is something else.
    """
    found = take_object(body, key)
    return {name: take_text(found, name) for name in found}


def _kind(value: JsonValue) -> str:
    return "missing" if value is None else type(value).__name__
