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
        """The issues, root causes first, plain information last."""
        return rank(self.issues)
