"""Binding configuration values to the fields of a frozen dataclass; every mistake at once."""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from dataclasses import Field, fields
from enum import IntEnum
from functools import cache
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from .nearest import nearest
from .options import option_info

__all__ = [
    "Mistakes",
    "bind_field",
    "closest",
    "closest_key",
    "field_of",
    "key_of",
    "option_fields",
]

T = TypeVar("T")
Mistakes = list[str]

_TRUE, _FALSE = {"1", "true", "yes", "on"}, {"0", "false", "no", "off"}


def key_of(name: str) -> str:
    """Return the spelling of a field in configuration files: ``max_issues`` → ``max-issues``."""
    return name.replace("_", "-")


@cache
def option_fields(cls: type) -> Mapping[str, Field[Any]]:
    """Return the fields of an options dataclass by their configuration key."""
    return {key_of(found.name): found for found in fields(cls)}


def field_of(cls: type, key: str) -> Field[Any] | None:
    """Return the field that ``key`` means; dashes and underscores are the same."""
    return option_fields(cls).get(key_of(key))


def closest(word: str, known: Sequence[str]) -> str:
    """Return ``" (did you mean 'x'?)"`` for the nearest known word, or nothing."""
    close = nearest(word, known)
    return f" (did you mean {close[0]!r}?)" if close else ""


def closest_key(cls: type, word: str) -> str:
    """Return what to write instead of a key that ``cls`` does not have."""
    known = list(option_fields(cls))
    return closest(word, known) or f"; known are {', '.join(known)}"


def bind_field(
    cls: type, found: Field[Any], value: object, place: str
) -> tuple[object, str | None]:
    """Convert ``value`` to the type of a field and hold it against the field's range.

    Args:
        cls: the options dataclass.
        found: one of its fields.
        value: from TOML, or text from the command line or an environment variable.
        place: how a mistake names the setting, e.g. ``"[tool.nabla.guard] every"``.

    Returns:
        The converted value and ``None``, or the value and what is wrong with it.
    """
    try:
        converted = _convert(_hints(cls)[found.name], value)
    except ValueError as error:
        return value, f"{place} = {value!r}: {error}"
    info = option_info(found.metadata)
    if isinstance(converted, (int, float)) and not isinstance(converted, bool):
        if info.minimum is not None and not converted >= info.minimum:
            return value, f"{place} = {value!r}: needs at least {info.minimum:g}"
        if info.maximum is not None and not converted <= info.maximum:
            return value, f"{place} = {value!r}: allows at most {info.maximum:g}"
    return converted, None


@cache
def _hints(cls: type) -> Mapping[str, object]:
    return get_type_hints(cls)


def _convert(hint: object, value: object) -> object:
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return _first_that_fits(inner, value)
    if origin is Literal:
        return _member(inner, value)
    if origin is tuple:
        return _many(inner, value)
    if origin is not None and issubclass(origin, Mapping):
        return _mapping(inner, value)
    if isinstance(hint, type) and issubclass(hint, IntEnum):
        return _enum(hint, value)
    return _scalar(hint, value)


def _first_that_fits(choices: tuple[object, ...], value: object) -> object:
    if value is None or (value == "none" and type(None) in choices):
        return None
    problems = []
    for choice in choices:
        if choice is type(None):
            continue
        try:
            return _convert(choice, value)
        except ValueError as error:
            problems.append(str(error))
    raise ValueError(" or ".join(problems))


def _member(allowed: tuple[object, ...], value: object) -> object:
    if value in allowed:
        return value
    names = ", ".join(repr(choice) for choice in allowed)
    hint = closest(str(value), [str(choice) for choice in allowed])
    raise ValueError(f"choose one of {names}{hint}")


def _many(inner: tuple[object, ...], value: object) -> object:
    if isinstance(value, str):
        value = [part.strip() for part in value.split(",") if part.strip()]
    if not isinstance(value, (list, tuple)):
        raise ValueError("needs a list")
    return tuple(_convert(inner[0], item) for item in value)


def _mapping(inner: tuple[object, ...], value: object) -> object:
    if isinstance(value, str):
        pairs = [part.partition("=") for part in value.split(",") if part.strip()]
        value = {key.strip(): text.strip() for key, _, text in pairs}
    if not isinstance(value, Mapping):
        raise ValueError("needs a table")
    return {str(key): _convert(inner[1], item) for key, item in value.items()}


def _enum(hint: type[IntEnum], value: object) -> IntEnum:
    for member in hint:
        if value == member or (isinstance(value, str) and value.lower() == member.name.lower()):
            return member
    names = ", ".join(member.name.lower() for member in hint)
    raise ValueError(f"choose one of {names}{closest(str(value), names.split(', '))}")


def _scalar(hint: object, value: object) -> object:
    if hint is bool:
        return _boolean(value)
    if hint is float and isinstance(value, (int, float, str)) and not isinstance(value, bool):
        return _number(float, value, "a number")
    if hint is int and isinstance(value, (int, str)) and not isinstance(value, bool):
        return _number(int, value, "a whole number")
    if hint is str and isinstance(value, str):
        return value
    wanted = {bool: "true or false", float: "a number", int: "a whole number", str: "text"}
    raise ValueError(f"needs {wanted.get(hint, 'another type')}")  # type: ignore[call-overload]


def _boolean(value: object) -> bool:
    if isinstance(value, bool):
        return value
    text = value.lower() if isinstance(value, str) else ""
    if text in _TRUE | _FALSE:
        return text in _TRUE
    raise ValueError("needs true or false")


def _number(kind: type[T], value: object, wanted: str) -> T:
    try:
        return kind(value)  # type: ignore[call-arg]
    except ValueError as error:
        raise ValueError(f"needs {wanted}") from error
