"""What changed between two reports: the same rule at the same place is the same issue."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from nabla_core.issue import Issue
from nabla_core.report import Report
from nabla_core.reporters.style import Style
from nabla_core.result import ResultMixin
from nabla_core.severity import Severity

from .redacting import redacted
from .writing import ReportLike, report_of

__all__ = ["ChangedSeverity", "Comparison", "compare"]

SCHEMA_VERSION = "1.0"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedSeverity:
    """An issue that both reports have, with another severity in the new one."""

    old: Severity
    issue: Issue

    def to_dict(self) -> dict[str, object]:
        """Return a JSON-safe mapping."""
        return {"old_severity": self.old.label, "issue": self.issue.to_dict()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison(ResultMixin):
    """Two reports, issue by issue. It fails when the new one has a failing issue more.

    Attributes:
        new: only in the new report.
        fixed: only in the old report, and their rule was evaluated again.
        unchanged: in both, as they are in the new report.
        changed: in both, with another severity.
        allowed: in the old report; the new one has them, but allowed.
        undecided: in the old report; their rule was not evaluated in the new one, so that nobody
            knows whether they are fixed.
        first_evaluated: IDs of rules with new issues that the old report had not evaluated.
        fail_on: severity from which a new issue fails.
    """

    new: tuple[Issue, ...] = ()
    fixed: tuple[Issue, ...] = ()
    unchanged: tuple[Issue, ...] = ()
    changed: tuple[ChangedSeverity, ...] = ()
    allowed: tuple[Issue, ...] = ()
    undecided: tuple[Issue, ...] = ()
    first_evaluated: tuple[str, ...] = ()
    fail_on: Severity = Severity.HIGH

    @property
    def issues(self) -> tuple[Issue, ...]:  # type: ignore[override]
        """The issues that the old report did not have, or had below ``fail_on``."""
        worse = (
            change.issue for change in self.changed if change.old < self.fail_on <= _new(change)
        )
        return (*self.new, *worse)

    @property
    def exit_code(self) -> int:
        """0, or 1 when there are new issues at or above ``fail_on``."""
        return 0 if self.passed else 1

    def to_dict(self) -> dict[str, object]:
        """Return a JSON-safe mapping (schema 1.0)."""
        return {
            "schema_version": SCHEMA_VERSION,
            "passed": self.passed,
            "fail_on": self.fail_on.label,
            "new": _dicts(self.new),
            "fixed": _dicts(self.fixed),
            "unchanged": _dicts(self.unchanged),
            "changed": [change.to_dict() for change in self.changed],
            "allowed": _dicts(self.allowed),
            "undecided": _dicts(self.undecided),
            "first_evaluated": list(self.first_evaluated),
        }

    def format(self) -> str:
        """Return the text that :meth:`print` shows, without colour."""
        from .comparison_text import console

        return console(self, Style())

    def _repr_html_(self) -> str:
        from html import escape

        return f"<pre>{escape(self.format())}</pre>"


def compare(
    old: ReportLike, new: ReportLike, *, fail_on: Severity | str | None = None
) -> Comparison:
    """Compare two reports by what identifies an issue: its rule and place, not step, line or value.

    Args:
        old: report or file of a stored one, e.g. of the main branch.
        new: report or file of a stored one.
        fail_on: severity from which a new issue fails; by default that of the new report.

    Raises:
        ReportFormatError: a file is no nabla report.
        ValueError: there is no such severity.
    """
    before, after = redacted(report_of(old)), redacted(report_of(new))
    limit = Severity.parse(fail_on) if isinstance(fail_on, str) else fail_on
    return _compared(before, after, after.fail_on if limit is None else limit)


def _compared(before: Report, after: Report, fail_on: Severity) -> Comparison:
    earlier, later = _by_fingerprint(before.issues), _by_fingerprint(after.issues)
    shared = [(earlier[key], issue) for key, issue in later.items() if key in earlier]
    new = tuple(issue for key, issue in later.items() if key not in earlier)
    gone = {key: issue for key, issue in earlier.items() if key not in later}
    allowed = {entry.issue.fingerprint for entry in after.allowed}
    evaluated = set(after.rules_used)
    left = {key: issue for key, issue in gone.items() if key not in allowed}
    return Comparison(
        new=new,
        fixed=tuple(issue for issue in left.values() if issue.rule in evaluated),
        unchanged=tuple(issue for was, issue in shared if was.severity == issue.severity),
        changed=tuple(
            ChangedSeverity(old=was.severity, issue=issue)
            for was, issue in shared
            if was.severity != issue.severity
        ),
        allowed=tuple(issue for key, issue in gone.items() if key in allowed),
        undecided=tuple(issue for issue in left.values() if issue.rule not in evaluated),
        first_evaluated=tuple(sorted({issue.rule for issue in new} - set(before.rules_used))),
        fail_on=fail_on,
    )


def _by_fingerprint(issues: Iterable[Issue]) -> Mapping[str, Issue]:
    """Return the issues by identity; the worst of those that share one."""
    found: dict[str, Issue] = {}
    for issue in issues:
        known = found.get(issue.fingerprint)
        if known is None or issue.severity > known.severity:
            found[issue.fingerprint] = issue
    return found


def _new(change: ChangedSeverity) -> Severity:
    return change.issue.severity


def _dicts(issues: Iterable[Issue]) -> list[dict[str, object]]:
    return [issue.to_dict() for issue in issues]
