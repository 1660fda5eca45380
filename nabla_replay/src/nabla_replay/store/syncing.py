"""Bringing the log to the disk now and then, on a thread of its own.

A sync on the training thread costs milliseconds per step; here a loss of power costs at most the
records of one interval, and a killed process costs none.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

__all__ = ["SyncThread"]


class SyncThread:
    """Calls ``sync`` every so often, if something was written since.

    Args:
        sync: brings the log to the disk; its own errors are its own business.
        every_s: interval.
        name: of the thread.

    Attributes:
        is_due: set by whoever has written something.
    """

    def __init__(self, sync: Callable[[], None], every_s: float, name: str) -> None:
        self._sync, self._every_s = sync, every_s
        self._stop = threading.Event()
        self.is_due = False
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._runs = True
        try:
            self._thread.start()
        except RuntimeError:  # no more threads: then the log is synced when the run is closed
            self._runs = False

    def stop(self) -> None:
        """End the thread."""
        self._stop.set()
        if self._runs:
            self._thread.join()

    def _work(self) -> None:
        while not self._stop.wait(self._every_s):
            if self.is_due:
                self.is_due = False
                self._sync()
