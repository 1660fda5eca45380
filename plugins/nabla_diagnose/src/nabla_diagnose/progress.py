"""How far a long lint has come, on standard error, only where a person can see it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TextIO

from nabla_core.reporters.style import printable

__all__ = ["Progress"]

_EVERY_S = 0.2
_PATIENCE_S = 1.0


class Progress:
    """Shows how many rows of a log were read so far; wiped when it is done. A context manager.

    Nothing is shown in the first second, nor where the stream is no terminal.

    Args:
        name: of the log.
        number: which log it is, from 1.
        logs: number of logs.
        stream: where to show it; by default standard error.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        name: str,
        number: int = 1,
        logs: int = 1,
        *,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream, self._clock = stream or sys.stderr, clock
        self._is_shown = not self._stream.closed and self._stream.isatty()
        self._next_s = clock() + _PATIENCE_S
        self._name = printable(name[-40:]) + (f" ({number}/{logs})" if logs > 1 else "")
        self._drawn = 0

    def __call__(self, rows: int) -> None:
        """Say how many rows there were so far."""
        if not self._is_shown or self._clock() < self._next_s:
            return
        self._next_s = self._clock() + _EVERY_S
        line = f"lint {self._name}: {rows:,} rows"
        self._draw(line)
        self._drawn = len(line)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._drawn:
            self._draw(" " * self._drawn)
            self._draw("")

    def _draw(self, line: str) -> None:
        self._stream.write(f"\r{line}")
        self._stream.flush()
