"""Handing verdicts over: to the session around the call, and back to the caller."""

from __future__ import annotations

from collections.abc import Sequence

from nabla_core.issue import Issue
from nabla_core.report import AllowedIssue
from nabla_core.rule import Rule
from nabla_core.session import Session, SessionOptions, current_session

__all__ = ["deliver"]


def deliver(
    issues: Sequence[Issue], decided: Sequence[Rule]
) -> tuple[tuple[Issue, ...], tuple[AllowedIssue, ...]]:
    """Give the issues to the session around this call, if any.

    Args:
        issues: verdicts and notes.
        decided: rules that were decided, also those that found nothing.

    Returns:
        The issues that selection and configuration keep, and those accepted by ``nabla.allow`` or a
        baseline; without a session around, by the configuration of the project.
    """
    session = current_session()
    if session is not None:
        session.use(decided)
    if not issues:
        return (), ()
    private = Session(options=SessionOptions(command="nabla.check", isolated=True))
    with private:
        for issue in issues:
            private.add(issue)
    if session is not None:
        for issue in issues:
            session.add(issue)
    return private.issues, tuple(private.allowed)
