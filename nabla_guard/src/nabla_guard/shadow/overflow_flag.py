"""The overflow flag of the processor: an infinity that no output shows has still raised it.

IEEE 754 processors keep a sticky flag per thread that every overflow raises. Reading and
clearing it costs about a microsecond a step. It proves nothing, because masks and other libraries
raise it too; a step that raises it where the ones before did not deserves a shadow sample.

Source: IEEE 754-2019, section 7.4; the values of the flag are those of the C libraries of Linux.
"""

from __future__ import annotations

import ctypes
import platform
import sys

__all__ = ["OverflowFlag"]

_OVERFLOW = {"x86_64": 8, "aarch64": 4}
_QUIET_STEPS = 2


class OverflowFlag:
    """Notices steps of the calling thread that overflow unlike those before, a few times a run.

    On other processors and systems, and for what other threads or a GPU compute, it never does.

    Args:
        credit: steps that may be noticed.
    """

    def __init__(self, credit: int = 3) -> None:
        self._bit = _OVERFLOW.get(platform.machine(), 0) if sys.platform == "linux" else 0
        self._credit = credit
        self._quiet = 0
        if self._bit:
            library = ctypes.CDLL(None)
            self._test, self._clear = library.fetestexcept, library.feclearexcept
            self._clear(self._bit)

    def raised(self) -> bool:
        """Whether it was raised since the last call, after some steps in which it was not."""
        if not self._bit or not self._credit:
            return False
        if not self._test(self._bit):
            self._quiet += 1
            return False
        self._clear(self._bit)
        usual, self._quiet = self._quiet < _QUIET_STEPS, 0
        if usual:
            return False
        self._credit -= 1
        return True
