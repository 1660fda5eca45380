"""Turns what a bisection saw into issues."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nabla_core.issue import Issue, Quantity

from ..rules import BISECT_FIRST_BAD, BISECT_INCONCLUSIVE, BISECT_NON_MONOTONIC
from .diagnosis import Change
from .episodes import Episode

__all__ = ["first_bad_issue", "inconclusive", "metric_issues", "non_monotonic_issue"]

_SHOWN = 6


def metric_issues(
    episodes: Sequence[Episode], told: str, changes: Sequence[Change]
) -> Iterator[Issue]:
    """Yield what a scan of a recorded number says."""
    if not episodes:
        return
    first = episodes[0]
    if first.last_good is None:
        yield BISECT_FIRST_BAD.issue(
            f"The run is bad ({told}) from its first recorded step on: step {first.first}, value "
            f"{first.value:.6g}.",
            step=first.first,
            value=first.value,
        )
    else:
        yield first_bad_issue(first.first, first.last_good, told, changes, value=first.value)
    if len(episodes) > 1:
        shown = ", ".join(f"{one.first} to {one.last}" for one in episodes[:_SHOWN])
        more = len(episodes) - _SHOWN
        yield BISECT_NON_MONOTONIC.issue(
            f"{len(episodes)} separate episodes are bad ({told}): steps {shown}"
            f"{f' and {more} more' if more > 0 else ''}; the last one may have another cause.",
            step=first.first,
            episodes=Quantity(value=len(episodes), limit=1),
        )


def first_bad_issue(
    step: int, last_good: int | None, told: str, changes: Sequence[Change], *, value: float | None
) -> Issue:
    """Return the issue about the first bad step."""
    measured = "" if value is None else f", value {value:.6g}"
    changed = f" Changed: {'; '.join(map(str, changes))}." if changes else ""
    good = "no good step before it" if last_good is None else f"step {last_good} is still good"
    message = f"Step {step} is the first bad one ({told}{measured}); {good}.{changed}"
    if value is None:
        return BISECT_FIRST_BAD.issue(message, step=step)
    return BISECT_FIRST_BAD.issue(message, step=step, value=value)


def non_monotonic_issue(flips: Sequence[int], interval: tuple[int | None, int], told: str) -> Issue:
    """Return the issue about a state that goes bad, good and bad again."""
    begin = "the start" if interval[0] is None else f"step {interval[0]}"
    return BISECT_NON_MONOTONIC.issue(
        f"The answer ({told}) changes {len(flips)} times over the checkpoints, at steps "
        f"{', '.join(map(str, flips[:_SHOWN]))}: the first bad step lies after {begin} and not "
        f"after step {interval[1]}, unless an earlier episode lies between two checkpoints.",
        step=interval[1],
        flips=Quantity(value=len(flips), limit=1),
    )


def inconclusive(reason: str, step: int | None = None) -> Issue:
    """Return the issue about a bisection without an answer."""
    return BISECT_INCONCLUSIVE.issue(f"No first bad step can be named: {reason}.", step=step)
