"""What follows from a root cause is told as information, not as a second alarm."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from nabla_core.issue import Issue
from nabla_core.severity import Severity

__all__ = ["EXPLAINS", "Consequences"]

_BLOWN_UP = "RUN103 RUN104 RUN105 RUN106 RUN107 RUN301 RUN302 RUN303 RUN401 RUN402 RUN407 RUN503"
_STUCK = "RUN107 RUN202 RUN206 RUN302 RUN507"

EXPLAINS: Mapping[str, frozenset[str]] = {
    cause: frozenset(text.split())
    for cause, text in {
        "RUN304": f"{_BLOWN_UP} RUN109 RUN201 RUN502",
        "RUN201": f"{_BLOWN_UP} RUN109 RUN202 RUN206 RUN408 RUN502",
        "RUN204": f"{_BLOWN_UP} RUN109 RUN201 RUN203 RUN206 RUN502",
        "RUN109": f"{_BLOWN_UP} RUN108 RUN201 RUN204 RUN502",
        "RUN503": "RUN103 RUN104 RUN105 RUN106 RUN107 RUN301 RUN502 RUN507",
        "RUN105": "RUN401 RUN402 RUN407 RUN503",
        "RUN104": "RUN103 RUN105 RUN108 RUN109 RUN301 RUN401 RUN502 RUN503",
        "RUN203": _STUCK,
        "RUN404": f"{_STUCK} RUN201 RUN401 RUN402 RUN410",
        "RUN408": f"{_STUCK} RUN401 RUN410",
        "RUN401": f"{_STUCK} RUN408 RUN410",
        "RUN410": f"{_STUCK} RUN401",
        "RUN402": "RUN107 RUN202 RUN302",
        "RUN302": "RUN107 RUN202 RUN206",
        "RUN206": "RUN107 RUN202 RUN304 RUN507",
        "RUN202": "RUN107",
        "RUN205": "RUN107 RUN202",
        "RUN111": "RUN108 RUN110",
        "RUN505": "RUN103 RUN301 RUN402 RUN502",
        "RUN409": "RUN103 RUN301 RUN502",
    }.items()
}
"""Rule of a cause → the rules of what may follow from it."""

_TOGETHER_ROWS = 15
_OF_ALL_ROWS = frozenset({"RUN107", "RUN108", "RUN507"})
"""These begin with the run, or with its best evaluation, so their onset says nothing."""


class Consequences:
    """Knows the causes found so far, and marks what follows from one of them."""

    def __init__(self) -> None:
        self._causes: dict[str, tuple[float, str]] = {}

    def mark(self, issues: Iterable[Issue]) -> list[Issue]:
        """Return the issues, those that follow from an earlier one as information about it."""
        return [self._mark(issue) for issue in issues]

    def _mark(self, issue: Issue) -> Issue:
        onset = _row(issue)
        for cause, (since, fingerprint) in self._causes.items():
            early = onset < since - _TOGETHER_ROWS and issue.rule not in _OF_ALL_ROWS
            follows = issue.rule in EXPLAINS[cause] and not early
            if follows and fingerprint != issue.fingerprint:
                return replace(
                    issue,
                    severity=Severity.INFO,
                    related=(fingerprint,),
                    evidence={**issue.evidence, "follows_from": cause},
                )
        if issue.rule in EXPLAINS and issue.severity > Severity.INFO:
            self._causes.setdefault(issue.rule, (onset, issue.fingerprint))
        return issue


def _row(issue: Issue) -> float:
    row = issue.evidence.get("row")
    return float(row) if isinstance(row, (int, float)) else 0.0
