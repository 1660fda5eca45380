"""From the findings of an examination to a result: causes first, allowed ones set aside."""

from __future__ import annotations

from dataclasses import replace

from nabla_core.issue import Issue, Reproduction
from nabla_core.report import AllowedIssue, NotEvaluated
from nabla_core.session import Session, SessionOptions, current_session

from .examination import Examination
from .result import CheckResult
from .rules import (
    BACKWARD_MISMATCH,
    COTANGENT_NONLINEAR,
    DOUBLE_BACKWARD_MISMATCH,
    MISSING_GRADIENT,
    MUTATES_COTANGENT,
    MUTATES_INPUT,
    MUTATES_SAVED,
    NONDETERMINISTIC_BACKWARD,
    NONDETERMINISTIC_FORWARD,
    RULES,
    STATE_LEAK,
)

__all__ = ["settle"]

_CAUSES = (
    MUTATES_SAVED,
    MUTATES_INPUT,
    MUTATES_COTANGENT,
    STATE_LEAK,
    NONDETERMINISTIC_FORWARD,
    NONDETERMINISTIC_BACKWARD,
    COTANGENT_NONLINEAR,
)
_CONSEQUENCES = {
    MUTATES_SAVED.id: {
        rule.id
        for rule in (
            BACKWARD_MISMATCH,
            MISSING_GRADIENT,
            NONDETERMINISTIC_BACKWARD,
            STATE_LEAK,
            DOUBLE_BACKWARD_MISMATCH,
        )
    },
}
"""Verdicts that only repeat what another one explains; they are left out."""


def settle(exam: Examination) -> CheckResult:
    """Hand the issues to the session, or to a private one that knows ``nabla.allow``."""
    issues = [_reproducible(exam, issue) for issue in _ordered(exam.issues)]
    kept, allowed = _filtered(issues)
    return CheckResult(
        candidate=exam.candidate.callee.name,
        issues=tuple(kept),
        seed=exam.seed,
        level=exam.options.level,
        checks=tuple(exam.checks),
        not_evaluated=tuple(
            NotEvaluated(rule=rule, reason=reason) for rule, reason in exam.skipped.items()
        ),
        allowed=tuple(allowed),
        forward_calls=exam.candidate.forwards,
        backward_calls=exam.candidate.backwards,
    )


def _ordered(issues: list[Issue]) -> list[Issue]:
    found = {issue.rule for issue in issues}
    explained: set[str] = set()
    for cause, consequences in _CONSEQUENCES.items():
        if cause in found:
            explained |= consequences
    order = {rule.id: position for position, rule in enumerate(_CAUSES)}
    rest = [issue for issue in issues if issue.rule not in explained]
    return sorted(rest, key=lambda x: (-int(x.severity), order.get(x.rule, len(order))))


def _reproducible(exam: Examination, issue: Issue) -> Issue:
    return replace(issue, plugin="check", reproduction=Reproduction(seed=exam.seed))


def _filtered(issues: list[Issue]) -> tuple[list[Issue], list[AllowedIssue]]:
    session = current_session()
    if not issues:
        if session is not None:
            session.use(RULES)
        return [], []
    private = Session(
        host=None if session is None else session.host,
        config=None if session is None else session.config,
        options=SessionOptions(command="nabla.check.operator", isolated=True),
    )
    with private:
        for issue in issues:
            private.add(issue)
    if session is not None:
        session.use(RULES)
        for issue in issues:
            session.add(issue)
    return list(private.issues), list(private.allowed)
