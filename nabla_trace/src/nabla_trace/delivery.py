"""Hands verdicts to the session around the call, and returns those that are wanted."""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterable, Sequence
from functools import lru_cache
from pathlib import Path

from nabla_core.config import Config
from nabla_core.host import default_host
from nabla_core.issue import Issue
from nabla_core.layers import find_file
from nabla_core.rule import Rule
from nabla_core.session import Session, SessionOptions, current_session

from .options import TraceOptions

__all__ = ["count_steps", "deliver", "trace_options"]


def deliver(issues: Sequence[Issue], decided: Iterable[Rule]) -> tuple[Issue, ...]:
    """Return the issues that selection and configuration keep.

    Args:
        issues: verdicts and notes.
        decided: rules that were decided, also those that found nothing.
    """
    session = current_session()
    if session is not None:
        session.use(decided)
    if not issues:
        return ()
    private = Session(options=SessionOptions(command="nabla.trace", isolated=True))
    with private:
        for issue in issues:
            private.add(issue)
    if session is not None:
        for issue in issues:
            session.add(issue)
    return private.issues


def count_steps(steps: int) -> None:
    """Tell the session around the call how many steps were seen."""
    session = current_session()
    if session is not None:
        session.last_step = max(session.last_step, steps - 1)


def trace_options() -> TraceOptions:
    """Return the effective options: those of the session around the call, or of the project."""
    session = current_session()
    return session.options(TraceOptions) if session is not None else _of_the_project(_sources())


def _sources() -> tuple[Hashable, ...]:
    """Return what tells whether the project's options may have changed since they were read."""
    path = find_file(Path.cwd())
    written = path.stat() if path is not None else None
    named = sorted((key, os.environ[key]) for key in os.environ if key.startswith("NABLA_"))
    stamp = None if written is None else (written.st_mtime_ns, written.st_size, written.st_ino)
    return path, stamp, tuple(named)


@lru_cache(maxsize=1)
def _of_the_project(sources: tuple[Hashable, ...]) -> TraceOptions:
    return Config.discover(default_host()).options(TraceOptions)
