"""Root causes first: a simple causal order of the findings of a run.

The earliest onset comes first. Among findings whose onsets lie within a few rows of each other, the
one deeper in the chain of causes does: data before initialisation, initialisation before gradients,
gradients before steps, steps before the loss, the loss before its validation.
"""

from __future__ import annotations

from collections.abc import Iterable

from nabla_core.issue import Issue

__all__ = ["CAUSAL_ORDER", "rank"]

_ORDER = (
    "RUN505 RUN504 RUN501 RUN502 RUN506 RUN503 RUN207 RUN410 RUN404 RUN409 RUN401 RUN402 RUN403 "
    "RUN302 RUN303 RUN304 RUN206 RUN204 RUN205 RUN109 RUN408 RUN201 RUN202 RUN203 RUN406 RUN405 "
    "RUN111 RUN110 RUN601 RUN602 RUN603 RUN301 RUN104 RUN105 RUN102 RUN101 RUN103 RUN106 RUN407 "
    "RUN112 RUN507 RUN108 RUN107 RUN508 RUN902 RUN901"
)
CAUSAL_ORDER = tuple(_ORDER.split())
"""IDs of the rules, causes before consequences."""

_TOGETHER_ROWS = 15
_OF_ONE_DEPTH = frozenset({"RUN301", "RUN104", "RUN105"})
"""What became of the loss: here the row decides at which it left its level first, and of a single
batch and the level after it in the same row the batch."""
_WILD = 10.0
"""Times the start; below it a spike may be the first row of weights that were lost."""
_DEPTH = {rule: depth for depth, rule in enumerate(CAUSAL_ORDER)}


def rank(issues: Iterable[Issue]) -> tuple[Issue, ...]:
    """Return the issues with root causes first.

    Issues of other families have exact facts behind them and come first, in their own order. Plain
    information comes last.
    """
    exact, statistical, notes = [], [], []
    for issue in issues:
        if issue.severity <= issue.severity.INFO:
            notes.append(issue)
        elif issue.rule in _DEPTH:
            statistical.append(issue)
        else:
            exact.append(issue)
    return (*exact, *_by_cause(statistical), *notes)


def _by_cause(pool: list[Issue]) -> list[Issue]:
    left = list(pool)
    ordered = []
    while left:
        earliest = min(map(_onset, left))
        together = [issue for issue in left if _onset(issue) <= earliest + _TOGETHER_ROWS]
        chosen = min(together, key=_key)
        ordered.append(chosen)
        left.remove(chosen)
    return ordered


def _key(issue: Issue) -> tuple[int, float, int]:
    depth = _DEPTH[issue.rule]
    if issue.rule == "RUN301" and not _is_wild(issue):
        return _DEPTH["RUN101"], _onset(issue), len(_DEPTH)
    group = _DEPTH["RUN301"] if issue.rule in _OF_ONE_DEPTH else depth
    return group, _onset(issue), depth


def _is_wild(issue: Issue) -> bool:
    """Whether no sample of the data is as hard as that of a spike, whatever the weights are."""
    loss, start = issue.evidence.get("loss"), issue.evidence.get("start")
    if not isinstance(loss, (int, float)) or not isinstance(start, (int, float)):
        return False
    return loss > _WILD * abs(start)


def _onset(issue: Issue) -> float:
    """The row of the onset; rows and not steps, because logs differ in their period."""
    row = issue.evidence.get("row")
    return float(row) if isinstance(row, (int, float)) else float(issue.step or 0)
