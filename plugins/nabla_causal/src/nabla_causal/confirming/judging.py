"""What is wrong in a captured run: by its curve, and by the first bad step executed again."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol, cast

from nabla_core.facade import public_name
from nabla_core.issue import Issue
from nabla_replay.store.entries import StepEntry
from nabla_replay.store.reader import RunReader

__all__ = ["issues_in"]

Build = Callable[[], object]


class _Watched(Protocol):
    """What ``nabla.watch()`` returns, as far as it is used here."""

    @property
    def issues(self) -> Sequence[Issue]:
        """Distinct issues so far."""

    def log(self, step: int, loss: float | None, **signals: float) -> object:
        """Take one row in."""

    def finish(self) -> _Watched:
        """Judge the whole run."""


def issues_in(run: Path, build: Build | None) -> list[Issue]:
    """Return what is wrong in a captured run.

    Args:
        run: its folder.
        build: makes the program: the first step whose loss is not finite is then executed again
            under the guard, which names the origin.

    Raises:
        RunFormatError: there is no run that this version reads.
    """
    with RunReader.open(run) as reader:
        steps = list(reader.steps())
    bad = next((one.step for one in steps if one.loss is not None and _is_odd(one.loss)), None)
    if bad is None or build is None:
        return _by_curve(steps)
    exact = list(_by_execution(run, bad, build))
    before = _by_curve([one for one in steps if one.step < bad])
    return [*exact, *before] if exact else _by_curve(steps)


def _by_curve(steps: Sequence[StepEntry]) -> list[Issue]:
    """Judge the recorded numbers by the rules over runs, if they are installed."""
    try:
        watch = cast("Callable[..., _Watched]", public_name("watch"))
    except ModuleNotFoundError:
        return []
    watched = watch(quiet=True)
    for entry in steps:
        watched.log(entry.step, entry.loss, **entry.signals)
    return list(watched.finish().issues)


def _by_execution(run: Path, step: int, build: Build) -> Iterator[Issue]:
    from nabla_replay.replaying.explaining import explain_step

    for issue in explain_step(run, step, build=build).issues:
        if issue.rule.startswith("NUM"):
            yield replace(issue, step=step, last_step=step)


def _is_odd(loss: float) -> bool:
    return not math.isfinite(loss)
