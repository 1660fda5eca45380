"""A progress bar on standard error, only where a person can see it."""

from __future__ import annotations

import sys
import time
from typing import TextIO

__all__ = ["Progress"]

_WIDTH = 30
_EVERY_S = 0.1


class Progress:
    """Draws ``fuzz ███░░░ 40/100`` and wipes it when it is done.

    Args:
        label: word in front.
        total: number of steps.
        shown: whether to draw; by default when the stream is a terminal.
        stream: where to draw; by default standard error.
    """

    def __init__(
        self, label: str, total: int, shown: bool | None = None, stream: TextIO | None = None
    ) -> None:
        self._label = label
        self._total = total
        self._stream = stream or sys.stderr
        self._shown = _is_terminal(self._stream) if shown is None else shown
        self._next_s = 0.0

    def update(self, done: int) -> None:
        """Draw the bar with ``done`` steps, at most ten times a second."""
        if not self._shown or time.monotonic() < self._next_s:
            return
        self._next_s = time.monotonic() + _EVERY_S
        filled = _WIDTH * min(done, self._total) // max(self._total, 1)
        bar = "█" * filled + "░" * (_WIDTH - filled)
        self._stream.write(f"\r{self._label} {bar} {done}/{self._total}")
        self._stream.flush()

    def close(self) -> None:
        """Wipe the bar."""
        if self._shown and self._next_s:
            self._stream.write("\r" + " " * (len(self._label) + _WIDTH + 24) + "\r")
            self._stream.flush()


def _is_terminal(stream: TextIO) -> bool:
    try:
        return stream.isatty()
    except ValueError:  # closed
        return False
