"""One letter for each well-known component and table: a step is written many times."""

from __future__ import annotations

__all__ = ["long", "short"]

_SHORT = {
    "rng": "r",
    "optimizer": "o",
    "scheduler": "s",
    "scaler": "a",
    "extra": "x",
    "loader": "l",
    "parameters": "p",
    "buffers": "b",
    "gradients": "g",
}
_LONG = {letter: name for name, letter in _SHORT.items()}
_ESCAPE = "="


def short(name: str) -> str:
    """Return the name as it is written; one that looks short already is escaped."""
    found = _SHORT.get(name)
    if found is not None:
        return found
    return _ESCAPE + name if name in _LONG or name.startswith(_ESCAPE) else name


def long(written: str) -> str:
    """Undo :func:`short`."""
    if written.startswith(_ESCAPE):
        return written[1:]
    return _LONG.get(written, written)
