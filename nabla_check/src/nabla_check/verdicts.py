"""From the findings of an examination to a result: causes first, allowed ones set aside."""

from __future__ import annotations

from dataclasses import replace

from nabla_core.issue import Issue, Reproduction
from nabla_core.report import NotEvaluated
from nabla_core.session import current_session
from nabla_core.severity import Severity

from .delivery import deliver
from .evidence.failure import CheckCall, script_for, store
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


def settle(exam: Examination, call: CheckCall) -> CheckResult:
    """Complete the issues with what shows them again, and hand them to the session.

    Raises:
        InputError: ``artifact_dir`` cannot be written.
    """
    issues = _reproducible(exam, call, _ordered(exam.issues))
    found = {issue.rule for issue in issues}
    decided = [rule for rule in RULES if rule.id in found or rule.id not in exam.skipped]
    kept, allowed = deliver(issues, decided)
    _tell_what_was_not_decided(exam)
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


def _reproducible(exam: Examination, call: CheckCall, issues: list[Issue]) -> list[Issue]:
    faults = [issue for issue in issues if issue.severity >= Severity.LOW]
    if not faults:
        return [replace(issue, reproduction=Reproduction(seed=exam.seed)) for issue in issues]
    title = f"{faults[0].rule} {faults[0].name} of {exam.candidate.callee.name}"
    script = script_for(call, title)
    again = Reproduction(seed=exam.seed, script=script)
    artifact = store(call, exam.given, faults, script)
    return [
        replace(issue, reproduction=again, artifact=artifact) if issue in faults else issue
        for issue in issues
    ]


def _tell_what_was_not_decided(exam: Examination) -> None:
    session = current_session()
    if session is not None:
        known = {rule.id: rule for rule in RULES}
        for rule_id, reason in exam.skipped.items():
            session.undecide(known[rule_id], f"{exam.candidate.callee.name}: {reason}")
