"""Choosing by globs among named things."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import TypeVar

from nabla_core.errors import UsageError
from nabla_core.nearest import nearest

from .view import InputAbsent

__all__ = ["ALL", "Globs", "chosen", "read_globs", "spelled"]

T = TypeVar("T")

Globs = tuple[str, ...]
ALL: Globs = ("*",)


def read_globs(call: str, given: str | Iterable[str]) -> Globs:
    """Return globs as a tuple.

    Args:
        call: how the person wrote the contract, for messages.
        given: one glob or several.

    Raises:
        UsageError: none was given, or one of them is no text.
    """
    globs: tuple[object, ...] = (given,) if isinstance(given, str) else tuple(given)
    texts = tuple(glob for glob in globs if isinstance(glob, str) and glob)
    if not globs or len(texts) < len(globs):
        raise UsageError(f"{call} = {given!r}: needs a glob such as 'encoder.*', or several")
    return texts


def chosen(named: Mapping[str, T], globs: Globs, what: str) -> Mapping[str, T]:
    """Return the entries whose name matches one of ``globs``.

    Args:
        named: things by name.
        globs: patterns as in a shell, e.g. ``encoder.*``.
        what: how the message calls them, e.g. ``"parameter"``.

    Raises:
        InputAbsent: none matches.
    """
    if globs == ALL:
        return named
    found = {
        name: thing
        for name, thing in named.items()
        if any(fnmatchcase(name, glob) for glob in globs)
    }
    if not found:
        close = nearest(globs[0], list(named), cutoff=0.4)
        hint = f"; the nearest name is {close[0]!r}" if close else ""
        raise InputAbsent(f"no {what} is called like {spelled(globs)}{hint}")
    return found


def spelled(globs: Globs) -> str:
    """Return globs as a person would write them."""
    return ", ".join(globs)
