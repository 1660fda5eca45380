"""The log of a captured run, read as step records, one at a time."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Protocol

from nabla_core.artifacts.opening import open_regular
from nabla_core.errors import InputError
from nabla_core.records import StepRecord

from ..errors import RecordError
from ..store.entries import StepEntry
from ..store.layout import MAX_LOG_BYTES
from ..store.line_stream import read_lines
from ..store.lines import check_line, parse_line

__all__ = ["ReadOptions", "read_steps", "sniff"]

_STEP = b'"k":"step"'
_KIND_WITHIN = 64
_RATE = "lr"


class ReadOptions(Protocol):
    """How a log is to be read.

    Attributes:
        columns: signal to the name under which it was captured.
    """

    @property
    def columns(self) -> Mapping[str, str]:
        """See the class."""


def sniff(head: bytes) -> float:
    """Return how surely these first bytes are the log of a captured run: its first line is framed
    and checksummed as nothing else is."""
    line, newline, _ = head.partition(b"\n")
    try:
        check_line(line)
    except RecordError:
        return 0.0
    return 1.0 if newline else 0.0


def read_steps(path: Path, options: ReadOptions | None = None) -> Iterator[StepRecord]:
    """Yield the steps of a log in its order, in constant memory: the loss, the learning rate, and
    what was captured beside them. A resumed run may repeat some.

    A rate is stored where it changes; it holds until then. Damaged lines are passed over:
    ``nabla inspect`` lists them.

    Args:
        path: ``steps.r<rank>.jsonl`` of a run.
        options: which name is which signal.

    Raises:
        UnsafePathError: it is a link, a pipe or a device.
        InputError: it cannot be read, or lacks a name that the options want.
    """
    wanted = {} if options is None else dict(options.columns)
    names: dict[str, None] = {}
    rate: dict[str, float] = {}
    for entry in _entries(path):
        signals = {**rate, **entry.signals}
        if entry.loss is not None:
            signals["loss"] = entry.loss
        if _RATE in signals:
            rate = {_RATE: signals[_RATE]}
        names.update(dict.fromkeys(signals))
        found = {signal: signals.pop(name) for signal, name in wanted.items() if name in signals}
        yield StepRecord(step=entry.step, time_s=0.0, signals=signals | found)
    missing = [name for name in wanted.values() if name not in names]
    if missing:
        seen = ", ".join(names) or "nothing"
        raise InputError(f"{path}: captured no {missing[0]!r}; captured was: {seen}")


def _entries(path: Path) -> Iterator[StepEntry]:
    descriptor = open_regular(path, max_bytes=MAX_LOG_BYTES)
    try:
        due = 0
        for raw in read_lines(descriptor):
            if raw.text is None or not raw.is_complete or _STEP not in raw.text[:_KIND_WITHIN]:
                continue
            try:
                line = parse_line(raw.text)
            except RecordError:
                continue
            if line.sequence >= due and isinstance(line.entry, StepEntry):
                due = line.sequence + 1
                yield line.entry
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error
    finally:
        os.close(descriptor)
