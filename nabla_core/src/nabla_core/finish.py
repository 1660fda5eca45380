"""Closing a session: last verdicts, causes, sections, and the report."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from .detector import is_finisher, is_illustrator
from .problem import Problem
from .provenance import device_name, git_commit, run_versions
from .redaction import redact
from .report import Cause, NotEvaluated, Report, RunInfo, Section
from .rules import EVENTS_DROPPED

if TYPE_CHECKING:
    from .session import Session

__all__ = ["build_report"]


def build_report(session: Session) -> Report:
    """Let the finishers judge, group the issues, and collect everything a reader may want."""
    _last_verdicts(session)
    issues = tuple(sorted(session.issues, key=lambda issue: (issue.step is None, issue.step or 0)))
    causes = session.host.collect(session, "nabla_explain", session=session, issues=issues)
    known = replace(
        _facts(session),
        issues=issues,
        causes=tuple(cause for cause in causes if isinstance(cause, Cause)),
    )
    sections = session.host.collect(session, "nabla_report_sections", report=known)
    report = replace(
        known,
        sections=(
            *_illustrations(session),
            *(section for section in sections if isinstance(section, Section)),
        ),
        problems=_problems(session),
        exit_code=0 if known.passed else 1,
    )
    session.host.call(session, "nabla_session_finish", session=session, report=report)
    return report


def _last_verdicts(session: Session) -> None:
    for detector in session.detectors:
        found: object = detector
        if not is_finisher(found):
            continue
        try:
            for issue in found.finish():
                session.add(issue)
        except Exception as error:
            session.retire(detector, error)


def _illustrations(session: Session) -> list[Section]:
    shown: list[Section] = []
    for detector in session.detectors:
        found: object = detector
        if not is_illustrator(found):
            continue
        try:
            shown += found.sections()
        except Exception as error:
            session.retire(detector, error)
    return shown


def _facts(session: Session) -> Report:
    return Report(
        run=_run_info(session),
        rules_used=tuple(sorted(session.rules_used - session.retired)),
        not_evaluated=_not_evaluated(session),
        allowed=tuple(session.allowed),
        stale_baseline=session.config.baseline.stale(
            entry.issue.fingerprint for entry in session.allowed
        ),
        dropped=dict(session.dropped),
        fail_on=session.config.core.fail_on,
    )


def _run_info(session: Session) -> RunInfo:
    duration_s = session.clock() - session.started_s
    started = datetime.fromtimestamp(time.time() - duration_s, UTC)
    return RunInfo(
        command=redact(session.bounds.command),
        started_utc=started.isoformat(timespec="seconds"),
        duration_s=duration_s,
        steps=session.last_step + 1,
        versions=run_versions(session.host),
        device=device_name(),
        seed=session.bounds.seed,
        git_commit=git_commit(),
        source=session.source.name if session.source else "",
    )


def _not_evaluated(session: Session) -> tuple[NotEvaluated, ...]:
    entries = [
        NotEvaluated(rule=rule_id, reason="its detector raised and was disabled (NAB008)")
        for rule_id in session.retired
    ]
    entries += [
        NotEvaluated(rule=rule_id, reason=reason) for rule_id, reason in session.undecided.items()
    ]
    return tuple(sorted(entries, key=lambda entry: entry.rule))


def _problems(session: Session) -> tuple[Problem, ...]:
    for kind, number in session.dropped.items():
        if number:
            session.problem(
                Problem(
                    rule=EVENTS_DROPPED.id,
                    plugin="core",
                    message=f"{number} {kind} did not fit into the session and were dropped",
                    hint=EVENTS_DROPPED.fix,
                )
            )
    return (*session.host.problems, *session.config.problems, *session.problems)
