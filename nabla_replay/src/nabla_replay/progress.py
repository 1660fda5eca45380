"""A progress bar on standard error, only where a person can see it."""

from __future__ import annotations

import sys
import time
from typing import TextIO

__all__ = ["ProgressBar"]

_WIDTH = 30
_EVERY_S = 0.1


class ProgressBar:
    """Draws ``replay ####---- 40/100``, and wipes it when it is done. Use it as a context manager.

    Args:
        label: word in front.
        stream: where to draw; by default standard error. Nothing is drawn where it is no terminal.
    """

    def __init__(self, label: str, stream: TextIO | None = None) -> None:
        self._label, self._stream = label, stream or sys.stderr
        self._is_shown = not self._stream.closed and self._stream.isatty()
        self._next_s = 0.0
        self._drawn = 0

    def __call__(self, done: int, total: int) -> None:
        """Draw the bar, at most ten times a second."""
        if not self._is_shown or time.monotonic() < self._next_s:
            return
        self._next_s = time.monotonic() + _EVERY_S
        filled = _WIDTH * min(done, total) // max(total, 1)
        line = f"{self._label} {'#' * filled}{'-' * (_WIDTH - filled)} {done}/{total}"
        self._draw(line)
        self._drawn = len(line)

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(self, *_: object) -> None:
        if self._drawn:
            self._draw(" " * self._drawn)
            self._stream.write("\r")
            self._stream.flush()

    def _draw(self, line: str) -> None:
        self._stream.write("\r" + line)
        self._stream.flush()
