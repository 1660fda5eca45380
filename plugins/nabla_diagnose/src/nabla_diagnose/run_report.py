"""The report of a run: a session's report that can name root causes first."""

from __future__ import annotations

from dataclasses import dataclass, fields

from nabla_core.issue import Issue
from nabla_core.report import Report

from .ranking import rank

__all__ = ["RunReport"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport(Report):
    """A finished run."""

    @classmethod
    def of(cls, report: Report) -> RunReport:
        """Return a session's report as that of a run.

        A rule whose signals were never there was not evaluated, and is not counted as if it were.
        """
        known = {field.name: getattr(report, field.name) for field in fields(Report)}
        missing = {entry.rule for entry in report.not_evaluated}
        known["rules_used"] = tuple(rule for rule in report.rules_used if rule not in missing)
        return cls(**known)

    @property
    def ranked(self) -> tuple[Issue, ...]:
        """The issues, root causes first, plain information last.

        Where a plugin has grouped them into causes, each cause leads its own chain; see
        :attr:`~nabla_core.report.Report.causes`.
        """
        places: dict[str, tuple[int, int]] = {}
        for number, cause in enumerate(self.causes):
            for place, fingerprint in enumerate(cause.chain):
                places.setdefault(fingerprint, (number, place))
        last = (len(self.causes), 0)

        def key(issue: Issue) -> tuple[bool, tuple[int, int]]:
            note = issue.severity <= issue.severity.INFO
            return note, last if note else places.get(issue.fingerprint, last)

        return tuple(sorted(rank(self.issues), key=key))
