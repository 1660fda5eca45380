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
        """Return a session's report as that of a run."""
        return cls(**{field.name: getattr(report, field.name) for field in fields(Report)})

    @property
    def ranked(self) -> tuple[Issue, ...]:
        """The issues, root causes first, plain information last."""
        return rank(self.issues)
