"""``nabla.explain``: why a run failed, from its session, its report or a file of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from os import PathLike
from pathlib import Path
from typing import Protocol, runtime_checkable

from nabla_core.errors import UsageError
from nabla_core.issue import Issue
from nabla_core.report_reader import read_report

from .explanation import Explanation
from .hypotheses import hypotheses_in
from .links import link
from .propagation import Propagation
from .propagation_issue import layer_order, propagation_in
from .rules import PROPAGATION
from .transitions import Transition, of_issues

__all__ = ["HasIssues", "explain", "explain_issues"]


@runtime_checkable
class HasIssues(Protocol):
    """A monitor, a session, a run, a report or a result."""

    @property
    def issues(self) -> Sequence[Issue]:
        """What was found."""


def explain(
    found: HasIssues | str | PathLike[str] | Iterable[Issue], kind: str | None = None
) -> Explanation:
    """Order what was found into causes, the most likely root cause first.

    Args:
        found: a monitor, a session, a run, a report, the file of a report (JSON), or issues.
        kind: only hypotheses that concern this kind or failure, e.g. ``"vanishing_gradients"``.

    Raises:
        UsageError: it is none of these, or there is no such kind.
        ReportFormatError: the file holds no report of nabla, or is damaged.
    """
    explanation = explain_issues(_issues(found))
    if kind is None:
        return explanation
    return Explanation(links=explanation.links, hypotheses=explanation.of(kind))


def explain_issues(issues: Iterable[Issue]) -> Explanation:
    """Order issues into causes; see :func:`explain`."""
    issues = tuple(issues)
    propagations = [
        propagation
        for issue in issues
        if issue.rule == PROPAGATION.id and (propagation := propagation_in(issue)) is not None
    ]
    order = layer_order(propagations)
    known = {issue.fingerprint: issue.related for issue in issues if issue.related}
    links = link([*of_issues(issues), *_shown(propagations)], order.get, known)
    return Explanation(links=links, hypotheses=tuple(hypotheses_in(links)))


def _shown(propagations: Iterable[Propagation]) -> list[Transition]:
    return [one for propagation in propagations for one in propagation.transitions()]


def _issues(found: object) -> Sequence[Issue]:
    if isinstance(found, (str, PathLike)):
        return read_report(Path(found)).issues
    if isinstance(found, HasIssues):
        return found.issues
    if isinstance(found, Iterable):
        issues = tuple(found)
        if all(isinstance(issue, Issue) for issue in issues):
            return issues
    raise UsageError(
        f"explain({type(found).__name__}): needs a monitor, a session, a run, a report, the file "
        "of a report, or issues"
    )
