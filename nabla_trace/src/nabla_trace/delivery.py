"""Hands verdicts to the session around the call, and returns those that are wanted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from nabla_core.issue import Issue
from nabla_core.rule import Rule
from nabla_core.session import Session, SessionOptions, current_session

from .options import TraceOptions

__all__ = ["deliver", "trace_options"]


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


def trace_options() -> TraceOptions:
    """Return the effective options: those of the session around the call, or of the project."""
    session = current_session()
    if session is None:
        session = Session(options=SessionOptions(command="nabla.trace", isolated=True))
    return session.options(TraceOptions)
