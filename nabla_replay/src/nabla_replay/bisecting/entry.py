"""``nabla.bisect``: the first bad step of a recorded run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Unpack

from nabla_core.issue import Issue

from ..replaying.fitting import fitted
from ..replaying.history import Segment, segments_of
from ..replaying.options import program_arguments
from ..replaying.program import Program, program_of
from ..store.entries import StepEntry
from ..store.reader import RunReader
from .diagnosis import Change, changes_between
from .episodes import bad_episodes, lineage, metric_names, metric_of
from .options import BisectArguments, chosen_predicate
from .predicates import MetricPredicate, StatePredicate
from .result import BisectResult
from .states import StateSearch
from .verdicts import first_bad_issue, inconclusive, metric_issues, non_monotonic_issue

__all__ = ["bisect"]

_FROM_THE_START = "the state is bad at the first checkpoint, and nothing good lies before it"


def bisect(
    run: str | Path,
    predicate: MetricPredicate | StatePredicate | None = None,
    **arguments: Unpack[BisectArguments],
) -> BisectResult:
    """Find the first bad step of a recorded run.

    A recorded number is scanned once: all its bad episodes are found, exactly. A predicate about
    the state is asked at every checkpoint; with a program to execute, the one interval in which the
    answer turns bad is walked step by step, so that no more than one interval is replayed. Where
    the answer turns more than once, only the interval is named.

    Args:
        run: folder of the run.
        predicate: from ``metric_greater_than``, ``metric_less_than`` or ``metric_nonfinite``, or a
            function that gets a :class:`~nabla_replay.bisecting.predicates.StateView` and returns
            whether that state is bad.
        **arguments: ``metric`` with ``greater_than``, ``less_than`` or ``nonfinite``; ``rank``; and
            the program, as of :func:`nabla_replay.replay`.

    Raises:
        UsageError: an argument is unknown or of the wrong kind.
        InputError: the run cannot be read, or does not fit the program.
    """
    chosen = chosen_predicate(predicate, arguments)
    given = program_arguments(arguments)
    has_program = any(given.get(name) is not None for name in ("build", "model"))
    rank = arguments.get("rank", 0)
    with RunReader.open(run) as reader:
        program = fitted(program_of(given), reader, rank) if has_program else None
        segments = segments_of(reader.log(rank))
        if isinstance(chosen, MetricPredicate):
            return _by_metric(reader.folder, segments, chosen)
        return _by_state(reader, segments, StateCall(chosen, program, rank))


class StateCall:
    """A question about the state, with what is needed to answer it.

    Args:
        predicate: the question.
        program: executes steps, if one was given.
        rank: whose record.
    """

    def __init__(self, predicate: StatePredicate, program: Program | None, rank: int) -> None:
        self.predicate = predicate
        self.program = program
        self.rank = rank

    @property
    def told(self) -> str:
        """The question in words."""
        name = getattr(self.predicate, "__name__", "")
        return name if name and name != "<lambda>" else "by the predicate"

    def search(self, reader: RunReader, segment: Segment) -> StateSearch:
        """Return a search that has asked about every checkpoint."""
        found = StateSearch(reader, segment, self.predicate, self.program, self.rank)
        found.probe_checkpoints()
        return found


def _by_metric(
    folder: Path, segments: tuple[Segment, ...], predicate: MetricPredicate
) -> BisectResult:
    steps = lineage(segments)
    episodes = tuple(bad_episodes(steps, predicate))
    seen = [entry for entry in steps if metric_of(entry, predicate.metric) is not None]
    changes: tuple[Change, ...] = ()
    if episodes and episodes[0].last_good is not None:
        by_step = {entry.step: entry for entry in seen}
        changes = changes_between(by_step[episodes[0].last_good], by_step[episodes[0].first])
    issues = list(metric_issues(episodes, predicate.told, changes))
    if not seen:
        known = ", ".join(metric_names(steps))
        told = f"what was: {known}" if known else "and nothing else was either"
        issues.append(inconclusive(f"{predicate.metric!r} was not recorded ({told})"))
    first = episodes[0] if episodes else None
    return BisectResult(
        run=folder,
        issues=tuple(issues),
        predicate=predicate.told,
        first_bad_step=None if first is None else first.first,
        last_good_step=None if first is None else first.last_good,
        interval=None if first is None else (first.last_good, first.first),
        episodes=episodes,
        changes=changes,
        probes=len(seen),
    )


def _by_state(reader: RunReader, segments: tuple[Segment, ...], call: StateCall) -> BisectResult:
    """Look at the segments in order, until one of them turns bad."""
    found: BisectResult | None = None
    for segment in segments:
        if not segment.snapshots:
            continue
        search = call.search(reader, segment)
        found = _judge(search, call.told)
        if found.interval is not None or found.issues:
            break
    if found is None:
        reason = inconclusive("the run has no checkpoint to look at")
        return BisectResult(run=reader.folder, issues=(reason,), predicate=call.told)
    return found


def _judge(search: StateSearch, told: str) -> BisectResult:
    steps = search.segment.steps
    bracket = search.bracket()
    if bracket is None:
        return _result(search, told, [inconclusive(_FROM_THE_START)])
    first, end = bracket
    flips = [search.answers[index][0].checkpoint.step for index in search.flips]
    turned = bool(search.flips)
    index = search.walk(first, end)
    good = steps[first - 1].step if first else None
    if search.diverged is not None:
        reason = f"the replay of step {search.diverged} differs from its record"
        return _result(search, told, [inconclusive(reason, search.diverged)])
    if index is None and not turned:
        return _result(search, told, _tail_issues(search, first, end))
    bad = steps[index if index is not None else end - 1].step
    last_good = good if index is None or index == first else steps[index - 1].step
    interval = (last_good, bad)
    if len(flips) > 1:
        return _result(search, told, [non_monotonic_issue(flips, interval, told)], interval, flips)
    if index is None:
        issue = inconclusive(
            f"without a program to replay, only that it lies after step {good} and not after {bad}",
            bad,
        )
        return _result(search, told, [issue], interval, flips)
    changes = _changes(steps, index, search.norms)
    issue = first_bad_issue(bad, last_good, told, changes, value=None)
    return _result(search, told, [issue], interval, flips, changes)


def _tail_issues(search: StateSearch, first: int, end: int) -> list[Issue]:
    """Nothing bad was seen: what lies behind the last checkpoint is known only by a replay."""
    if search.program is None and first < end:
        last = search.segment.steps[end - 1].step
        return [inconclusive(f"no checkpoint is bad; steps up to {last} have none behind them")]
    return []


def _changes(
    steps: list[StepEntry],
    index: int,
    norms: tuple[Mapping[str, float], Mapping[str, float]],
) -> tuple[Change, ...]:
    return changes_between(steps[index - 1], steps[index], norms) if index else ()


def _result(
    search: StateSearch,
    told: str,
    issues: list[Issue],
    interval: tuple[int | None, int] | None = None,
    flips: list[int] | None = None,
    changes: tuple[Change, ...] = (),
) -> BisectResult:
    is_certain = interval is not None and all(issue.rule == "REP301" for issue in issues)
    return BisectResult(
        run=search.reader.folder,
        issues=tuple(issues),
        predicate=told,
        first_bad_step=interval[1] if interval is not None and is_certain else None,
        last_good_step=None if interval is None else interval[0],
        interval=interval,
        flips=tuple(flips or ()),
        changes=changes,
        replayed_steps=search.replayed,
        probes=search.probes,
    )
