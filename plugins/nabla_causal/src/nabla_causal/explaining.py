"""``nabla.explain``: why a run failed, from its session, its report or a file of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from os import PathLike
from pathlib import Path
from types import ModuleType
from typing import Protocol, runtime_checkable

from nabla_core.errors import UsageError
from nabla_core.issue import Issue
from nabla_core.report_reader import read_report
from nabla_core.session import Session

from .explanation import Explanation
from .hypotheses import hypotheses_in, ranked
from .links import link
from .looking import ShiftOfInputs
from .naming import in_one_naming
from .propagation import Propagation
from .propagation_issue import layer_order, propagation_in
from .rules import INPUT_SHIFT, PROPAGATION
from .trail import Trail
from .transitions import Transition, of_issues

__all__ = ["HasIssues", "explain", "explain_issues"]


@runtime_checkable
class HasIssues(Protocol):
    """A monitor, a session, a run, a report or a result."""

    @property
    def issues(self) -> Sequence[Issue]:
        """What was found."""


def explain(
    found: HasIssues | str | PathLike[str] | Iterable[Issue],
    kind: str | None = None,
    *,
    run: str | PathLike[str] | None = None,
    build: Callable[[], object] | None = None,
    confirm: bool = False,
) -> Explanation:
    """Order what was found into causes, the most likely root cause first.

    Args:
        found: a monitor, a session, a run, a report, the file of a report (JSON), issues, or the
            folder of a captured run.
        kind: only hypotheses that concern this kind or failure, e.g. ``"vanishing_gradients"``.
        run: folder in which the same steps were captured; ``found`` itself, if that is one.
        build: makes the program of that run, as of ``nabla.replay``. Of a captured run, the first
            step whose loss is not finite is executed again with it.
        confirm: replay the captured steps with one thing changed, and rank by what that shows.

    Raises:
        UsageError: it is none of these, there is no such kind, or something is missing to confirm.
        ReportFormatError: the file holds no report of nabla, or is damaged.
        RunFormatError: the folder holds no captured run.
    """
    folder = _captured(found) if run is None else Path(run)
    if confirm and (folder is None or build is None):
        raise UsageError(
            "explain(confirm=True), --confirm: needs the folder of a captured run (run=, --run) and"
            " a function that makes its program (build=, --build file.py:function)"
        )
    if run is not None and folder is not None and not folder.is_dir():
        raise UsageError(f"explain(run=), --run {folder}: no such folder; give that of a capture")
    own = run is None and folder is not None
    issues = _replay("judging").issues_in(folder, build) if own else _issues(found)
    explanation = explain_issues(issues)
    if confirm:
        tested = _replay("replaying").confirmed(explanation.hypotheses, folder, build)
        explanation = _without_refuted(replace(explanation, hypotheses=tested), issues)
        tested = _replay("replaying").confirmed(explanation.hypotheses, folder, build)
        explanation = replace(explanation, hypotheses=tested)
    if kind is None:
        return explanation
    return replace(explanation, hypotheses=explanation.of(kind))


def explain_issues(issues: Iterable[Issue]) -> Explanation:
    """Order issues into causes; see :func:`explain`."""
    issues = tuple(issues)
    propagations = [
        propagation
        for issue in issues
        if issue.rule == PROPAGATION.id and (propagation := propagation_in(issue)) is not None
    ]
    order = layer_order(propagations)
    if any(issue.rule == INPUT_SHIFT.id for issue in issues):  # inputs may rise step by step, too
        propagations = [replace(propagation, rising_since=None) for propagation in propagations]
    known = {issue.fingerprint: issue.related for issue in issues if issue.related}
    found = in_one_naming([_dated(one, propagations) for one in of_issues(issues)], order)
    links = link([*found, *_shown(propagations, found)], order.get, known)
    return Explanation(links=links, hypotheses=tuple(hypotheses_in(links)))


def _without_refuted(explanation: Explanation, issues: Iterable[Issue]) -> Explanation:
    """Let what was thought to follow from a refuted cause stand for itself."""
    refuted = [one for one in explanation.hypotheses if one.standing == "refuted"]
    prints = {print for one in refuted if one.chain[1:] for print in one.root.fingerprints}
    if not prints:
        return explanation
    rest = explain_issues(issue for issue in issues if issue.fingerprint not in prints)
    known = {one.root: one for one in explanation.hypotheses}
    alone = [replace(one, chain=one.chain[:1], links=()) for one in refuted]
    others = [known.get(one.root, one) for one in rest.hypotheses]
    return replace(explanation, hypotheses=ranked([*others, *alone]))


def _dated(found: Transition, propagations: Iterable[Propagation]) -> Transition:
    """Date a shift of the inputs, which is seen some steps late, to what the layers show of it."""
    if found.rule != INPUT_SHIFT.id:
        return found
    onsets = [propagation.onsets[0].step for propagation in propagations]
    within = [step for step in onsets if found.earliest <= step <= found.first_step]
    return replace(found, first_step=min(within, default=found.earliest))


def _shown(
    propagations: Iterable[Propagation], found: Sequence[Transition]
) -> Iterator[Transition]:
    """Yield what the ranges show, except where a finding says the same of the same layer."""
    said = {(one.layer, one.failure, one.stage, one.first_step) for one in found if one.layer}
    for propagation in propagations:
        for one in propagation.transitions():
            if (one.layer, one.failure, one.stage, one.first_step) not in said:
                yield one


def _issues(found: object) -> Sequence[Issue]:
    if isinstance(found, (str, PathLike)):
        return read_report(Path(found)).issues
    if isinstance(found, HasIssues):
        return (*found.issues, *_shown_so_far(found))
    if isinstance(found, Iterable):
        issues = tuple(found)
        if all(isinstance(issue, Issue) for issue in issues):
            return issues
    raise UsageError(
        f"explain({type(found).__name__}): needs a monitor, a session, a run, a report, the file "
        "of a report, or issues"
    )


def _captured(found: object) -> Path | None:
    """Return the folder of a captured run, if it is one."""
    if isinstance(found, (str, PathLike)):
        with suppress(OSError, ValueError):  # a name that no file can have: reading it says so
            return Path(found) if Path(found).is_dir() else None
    return None


def _replay(room: str) -> ModuleType:
    """Import what needs nabla-replay.

    Raises:
        UsageError: it is not installed.
    """
    try:
        return import_module(f".confirming.{room}", __package__)
    except ModuleNotFoundError as error:
        raise UsageError(
            f"explain: a captured run needs {error.name}, which is not installed; "
            'run: pip install "nabla[replay]"'
        ) from error


def _shown_so_far(found: HasIssues) -> Iterator[Issue]:
    """Yield what the ranges of a session show, where it is not finished yet."""
    session = found if isinstance(found, Session) else getattr(found, "session", None)
    if isinstance(session, Session):
        known = {issue.fingerprint for issue in found.issues}
        for detector in session.detectors:
            shown = detector.shown() if isinstance(detector, (Trail, ShiftOfInputs)) else ()
            yield from (issue for issue in shown if issue.fingerprint not in known)
