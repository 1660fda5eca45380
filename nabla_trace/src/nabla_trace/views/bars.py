"""Bars and shades of text."""

from __future__ import annotations

import math

__all__ = ["bar", "shade", "signed"]

_EIGHTHS = " ▏▎▍▌▋▊▉█"
_SHADES = "░▒▓█"


def bar(share: float, width: int) -> str:
    """Return a bar of ``share`` (0 to 1) of ``width`` characters, padded to the width."""
    if not math.isfinite(share):
        return " " * width
    eighths = round(min(max(share, 0.0), 1.0) * width * 8)
    full, rest = divmod(eighths, 8)
    return ("█" * full + (_EIGHTHS[rest] if rest else "")).ljust(width)


def signed(value: float) -> str:
    """Return a number between -1 and 1 in five characters; a dash when it is undefined."""
    return f"{value:+.2f}" if math.isfinite(value) else "    -"


def shade(value: float) -> str:
    """Return a cell for a cosine: its sign and a shade for its size."""
    if not math.isfinite(value):
        return " ·"
    level = min(3, int(abs(value) * 4))
    return ("-" if value < 0 else "+") + _SHADES[level]
