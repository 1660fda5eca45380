"""The outcome of a session: everything a reader of the result may want, as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .issue import Issue, Location
from .plots import Plot
from .problem import Problem
from .result import ResultMixin
from .severity import Severity

__all__ = [
    "SCHEMA_VERSION",
    "AllowedIssue",
    "Cause",
    "NotEvaluated",
    "Report",
    "RunInfo",
    "Section",
]

SCHEMA_VERSION = "1.1"
"""Adding a field raises the minor number; renaming or removing one raises the major number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotEvaluated:
    """A selected rule (``rule`` holds its ID) that could not be decided, and why."""

    rule: str
    reason: str

    def to_dict(self) -> dict[str, object]:
        """Return a JSON-safe mapping."""
        return {"rule": self.rule, "reason": self.reason}


@dataclass(frozen=True, slots=True, kw_only=True)
class AllowedIssue:
    """An issue that the user allowed, with his reason (``source``: baseline or ``nabla.allow``)."""

    issue: Issue
    reason: str
    source: str

    def to_dict(self) -> dict[str, object]:
        """Return a JSON-safe mapping."""
        return {"issue": self.issue.to_dict(), "reason": self.reason, "source": self.source}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """A root cause: the issue it starts from and what follows.

    Attributes:
        rule: ID of a CAU rule.
        chain: fingerprints of issues, the origin first.
        score: 0 to 1, to rank causes; no probability.
        statement: one sentence.
        tests: what would confirm it.
        where: where it began.
        step: when it began, a 0-based optimizer step.
        supports: what speaks for it, one sentence each.
        contradicts: what speaks against it, one sentence each.
    """

    rule: str
    chain: tuple[str, ...]
    score: float
    statement: str
    tests: tuple[str, ...] = ()
    where: Location | None = None
    step: int | None = None
    supports: tuple[str, ...] = ()
    contradicts: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, object]:
        """Return a JSON-safe mapping."""
        return {
            "rule": self.rule,
            "chain": list(self.chain),
            "score": self.score,
            "statement": self.statement,
            "tests": list(self.tests),
            "where": None if self.where is None else self.where.to_dict(),
            "step": self.step,
            "supports": list(self.supports),
            "contradicts": list(self.contradicts),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """An extra part of a report.

    Attributes:
        title: heading.
        lines: plain text; every reporter shows it.
        plots: drawn by the reporters that can draw; the others leave them out.
    """

    title: str
    lines: tuple[str, ...] = ()
    plots: tuple[Plot, ...] = ()

    def to_dict(self) -> dict[str, object]:
        """Return a JSON-safe mapping."""
        return {
            "title": self.title,
            "lines": list(self.lines),
            "plots": [plot.to_dict() for plot in self.plots],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInfo:
    """What was run and where. Paths and names are redacted before they get here.

    Attributes:
        command: command line or description of the target.
        started_utc: ISO 8601.
        duration_s: wall-clock seconds.
        steps: optimizer steps seen.
        versions: package name to version, plugins included.
        device: ``"cpu"`` or the name of the accelerator.
        seed: seed given by the user, if any.
        git_commit: commit of the working folder, if any.
        source: name of the fact source.
    """

    command: str = ""
    started_utc: str = ""
    duration_s: float = 0.0
    steps: int = 0
    versions: Mapping[str, str] = field(default_factory=dict)
    device: str = ""
    seed: int | None = None
    git_commit: str | None = None
    source: str = ""

    def to_dict(self) -> dict[str, object]:
        """Return a JSON-safe mapping."""
        return {
            "command": self.command,
            "started_utc": self.started_utc,
            "duration_s": round(self.duration_s, 3),
            "steps": self.steps,
            "versions": dict(self.versions),
            "device": self.device,
            "seed": self.seed,
            "git_commit": self.git_commit,
            "source": self.source,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Report(ResultMixin):
    """A finished session.

    Attributes:
        run: what was run and where.
        issues: in the order of their first step.
        rules_used: IDs of the rules that were decided.
        not_evaluated: selected rules that could not be decided, with the reason.
        allowed: issues that the user allowed, with the reason.
        stale_baseline: baseline entries that no longer occur.
        causes: root causes, the most likely first.
        sections: extra parts by plugins.
        problems: what is wrong with nabla or a plugin.
        dropped: how many issues and events did not fit into the session's bounds.
        fail_on: severity from which an issue fails the run.
        exit_code: see the table in ``docs/architecture.md``.
    """

    run: RunInfo = field(default_factory=RunInfo)
    issues: tuple[Issue, ...] = ()
    rules_used: tuple[str, ...] = ()
    not_evaluated: tuple[NotEvaluated, ...] = ()
    allowed: tuple[AllowedIssue, ...] = ()
    stale_baseline: tuple[str, ...] = ()
    causes: tuple[Cause, ...] = ()
    sections: tuple[Section, ...] = ()
    problems: tuple[Problem, ...] = ()
    dropped: Mapping[str, int] = field(default_factory=dict)
    fail_on: Severity = Severity.HIGH
    exit_code: int = 0

    @property
    def counts(self) -> dict[str, int]:
        """Number of distinct issues by severity label, worst first."""
        found = {severity.label: 0 for severity in sorted(Severity, reverse=True)}
        for issue in self.issues:
            found[issue.severity.label] += 1
        return {label: number for label, number in found.items() if number}

    def _repr_html_(self) -> str:
        from .reporters.notebook import embedded

        return embedded(self)

    def to_dict(self) -> dict[str, object]:
        """Return a JSON-safe mapping (schema 1.1)."""
        return {
            "schema_version": SCHEMA_VERSION,
            "run": self.run.to_dict(),
            "counts": self.counts,
            "issues": [issue.to_dict() for issue in self.issues],
            "causes": [cause.to_dict() for cause in self.causes],
            "rules_used": list(self.rules_used),
            "not_evaluated": [entry.to_dict() for entry in self.not_evaluated],
            "allowed": [entry.to_dict() for entry in self.allowed],
            "stale_baseline": list(self.stale_baseline),
            "sections": [section.to_dict() for section in self.sections],
            "problems": [problem.to_dict() for problem in self.problems],
            "dropped": dict(self.dropped),
            "fail_on": self.fail_on.label,
            "exit_code": self.exit_code,
        }
