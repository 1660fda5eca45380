"""Ends a program as the interpreter would: uncaught exceptions, ``sys.exit`` and its status."""

from __future__ import annotations

import sys
import threading
import traceback
from types import TracebackType

__all__ = [
    "exit_status",
    "forget_own_frames",
    "show_uncaught",
    "wait_for_threads",
    "without_own_frames",
]

_OWN_PACKAGES = frozenset({"nabla", "nabla_core", "nabla_guard"})


def exit_status(request: SystemExit) -> int:
    """Return the status that Python gives the process for ``request``.

    A code that is no integer is printed to standard error, as Python does.
    """
    code = request.code
    if code is None:
        return 0
    if isinstance(code, int):
        return code
    sys.stdout.flush()
    print(code, file=sys.stderr)
    return 1


def show_uncaught(error: BaseException) -> int:
    """Hand ``error`` to ``sys.excepthook`` without frames of nabla; return the exit status."""
    forget_own_frames(error)
    sys.last_type, sys.last_value = type(error), error
    sys.last_traceback = error.__traceback__
    if sys.version_info >= (3, 12):
        sys.last_exc = error
    try:
        sys.excepthook(type(error), error, error.__traceback__)
    except SystemExit as request:
        return exit_status(request)
    except BaseException as broken:
        forget_own_frames(broken)
        broken.__context__ = None
        print("Error in sys.excepthook:", file=sys.stderr)
        traceback.print_exception(broken)
        print("\nOriginal exception was:", file=sys.stderr)
        traceback.print_exception(error)
    return 1


def forget_own_frames(error: BaseException) -> None:
    """Remove frames of nabla from ``error`` and the exceptions chained to it."""
    seen: set[int] = set()
    pending: list[BaseException | None] = [error]
    while pending:
        current = pending.pop()
        if current is None or id(current) in seen:
            continue
        seen.add(id(current))
        current.__traceback__ = without_own_frames(current.__traceback__)
        pending += [current.__cause__, current.__context__]
        if isinstance(current, BaseExceptionGroup):
            pending += current.exceptions


def without_own_frames(trace: TracebackType | None) -> TracebackType | None:
    """Return ``trace`` without the frames of nabla that lie above or between the program's own.

    A last frame of nabla stays: there nabla itself raised, e.g. on a wrong argument.
    """
    entries: list[TracebackType] = []
    while trace is not None:
        entries.append(trace)
        trace = trace.tb_next
    kept: TracebackType | None = None
    for entry in reversed(entries):
        if kept is None or not _is_own(entry):
            kept = TracebackType(kept, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return None if all(map(_is_own, entries)) else kept


def wait_for_threads() -> None:
    """Wait for the program's threads, as the interpreter does before its exit handlers.

    Joining them one by one would hang on idle executors, which only stop in this very call; a
    second call, by the interpreter itself, returns at once.
    """
    shutdown = vars(threading).get("_shutdown")
    if shutdown is not None:
        shutdown()


def _is_own(entry: TracebackType) -> bool:
    module: object = entry.tb_frame.f_globals.get("__name__", "")
    return isinstance(module, str) and module.partition(".")[0] in _OWN_PACKAGES
