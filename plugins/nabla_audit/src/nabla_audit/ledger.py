"""Brings verdicts up to date when the run ends: how often a pattern held in the whole run."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace

from nabla_core.issue import Evidence, Issue
from nabla_core.session import Session
from nabla_core.severity import Severity

__all__ = ["Ledger"]


class Ledger:
    """Remembers the issues that a detector has made and rewrites them at the end.

    Args:
        session: where the issues are kept.
    """

    def __init__(self, session: Session | None) -> None:
        self._session = session
        self._made: dict[Hashable, str] = {}
        self._held: dict[Hashable, int] = {}
        self._last: dict[Hashable, int] = {}

    def made(self, key: Hashable, issue: Issue) -> Issue:
        """Remember ``issue`` under ``key`` and return it."""
        self._made[key] = issue.fingerprint
        return issue

    def held(self, key: Hashable, step: int) -> None:
        """Count one more step at which the pattern of ``key`` held."""
        self._held[key] = self._held.get(key, 0) + 1
        self._last[key] = step

    def times(self, key: Hashable) -> int:
        """Return how often the pattern held."""
        return self._held.get(key, 0)

    def rewrite(
        self,
        key: Hashable,
        message: str,
        *,
        severity: Severity | None = None,
        **evidence: Evidence,
    ) -> None:
        """Give the issue of ``key``, if it was made and kept, its final text and numbers."""
        if self._session is None or key not in self._made:
            return
        for issue in self._session.issues:
            if issue.fingerprint == self._made[key]:
                self._session.replace(
                    replace(
                        issue,
                        message=message,
                        severity=issue.severity if severity is None else severity,
                        count=max(issue.count, self.times(key)),
                        last_step=self._last.get(key, issue.last_step),
                        evidence={**issue.evidence, **evidence},
                    )
                )
