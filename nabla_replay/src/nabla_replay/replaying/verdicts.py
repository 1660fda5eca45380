"""Turns what a replay saw into issues: the environment first, then the run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from nabla_core.issue import Issue, Location
from nabla_core.severity import Severity

from ..environment.comparing import Difference, environment_issues
from ..rules import (
    ENVIRONMENT_DIFFERS,
    LOADER_STATE_MISMATCH,
    REPLAY_DIVERGENCE,
    REPLAY_UNVERIFIED,
    RNG_DIVERGENCE,
)
from ..wording import amount
from .comparing import ComponentResult, StepResult
from .drawing import Draws
from .habits import Rates
from .result import Divergence

__all__ = [
    "counters_issue",
    "divergence_issue",
    "draws_issue",
    "from_beginning_issue",
    "rates_issue",
    "replay_issues",
]

_MANY = 3
_DATA = ("loader", "data", "batch")
_OUTSIDE = ("scheduler", "optimizer")


def replay_issues(
    steps: tuple[StepResult, ...],
    found: Divergence | None,
    environment: tuple[Difference, ...],
    reasons: tuple[str, ...],
) -> Iterator[Issue]:
    """Yield the issues of a replay.

    Args:
        steps: what was compared.
        found: the first difference.
        environment: settings that differ.
        reasons: what else is known to break bit-exactness.
    """
    breaking = [one for one in environment if one.breaks]
    if found is not None and breaking:
        yield _environment_issue(breaking, found)
        yield from environment_issues(tuple(one for one in environment if not one.breaks))
    else:
        yield from environment_issues(environment)
    if found is not None and not breaking:
        yield divergence_issue(_component(steps, found), found, reasons)
    elif found is None and reasons:
        yield REPLAY_UNVERIFIED.issue(
            f"Not everything was compared: {'; '.join(reasons)}.", reasons=len(reasons)
        )
    yield from _unverified(steps)


def from_beginning_issue(checkpoint: int) -> Issue:
    """Say that steps match from the program's beginning on, and not from a checkpoint."""
    return REPLAY_UNVERIFIED.issue(
        "The steps match when the program is executed from its beginning, and do not when it is "
        f"restored from the checkpoint after step {checkpoint}: it holds state that no checkpoint "
        "holds (a generator, a counter, an environment, workers that live on). Give such state as "
        "extra to replay from the middle.",
        step=checkpoint,
    )


def rates_issue(rates: Rates) -> Issue:
    """Say that the rates were set beside ``step()``."""
    done = (
        "its schedules were called after each step"
        if rates.startswith("schedule")
        else f"the recorded ones were put back {rates} each step"
    )
    return REPLAY_UNVERIFIED.issue(
        "The program's step() does not set the learning rates (or other settings of its "
        "optimizers) that were recorded, and the steps were executed as if the loop around it did: "
        f"{done}."
    )


def counters_issue(paths: Sequence[str]) -> Issue:
    """Say that the counters of a program were set."""
    return REPLAY_UNVERIFIED.issue(
        "The program counts its steps by itself, which no checkpoint holds, and the steps match "
        f"with its counters put to where they were then: {_listed(tuple(paths))}.",
        counters=len(paths),
    )


def draws_issue(drawn: Mapping[int, Draws]) -> Issue:
    """Say that numbers were drawn before some steps as the recorded loop drew them."""
    names = ", ".join(dict.fromkeys(name for words in drawn.values() for name, _ in words))
    return REPLAY_UNVERIFIED.issue(
        f"The recorded program drew random numbers ({names}) that step() does not draw, before or "
        f"in {amount(len(drawn), 'step')}, the first is step {min(drawn)}; with as many drawn "
        "there, the steps match. That a loop draws them and that the recorded step did so for "
        "nothing cannot be told apart.",
        step=min(drawn),
        drawing_steps=len(drawn),
    )


def divergence_issue(
    part: ComponentResult | None, found: Divergence, reasons: tuple[str, ...]
) -> Issue:
    """Return the issue about the first difference."""
    where = _place(found)
    since = "" if found.since is None else f" (it may have begun at step {found.since})"
    because = f" Known to matter: {'; '.join(reasons)}." if reasons else ""
    trace = f" It begins in {found.place}." if found.place is not None else ""
    values = ""
    if part is not None and part.recorded and len(part.recorded) < 40:
        values = f": recorded {part.recorded}, replayed {part.replayed}"
    names = f" ({_listed(found.names)})" if found.names else ""
    if found.component in _OUTSIDE:
        because += (
            " A replay executes step() alone: a schedule or a rate that the program sets between "
            "two steps of an epoch belongs into it."
        )
    rule = REPLAY_DIVERGENCE
    if found.component in _DATA:
        rule = LOADER_STATE_MISMATCH
    elif found.component == "rng":
        rule = RNG_DIVERGENCE
    return rule.issue(
        f"Step {found.step} differs from its record first in the {found.component}{names}{values}"
        f"{since}.{trace}{because}",
        step=found.step,
        where=where,
        component=found.component,
        differing=len(found.names),
    )


def _environment_issue(breaking: list[Difference], found: Divergence) -> Issue:
    names = ", ".join(one.name for one in breaking)
    told = "; ".join(f"{one} ({one.why})" for one in breaking)
    return ENVIRONMENT_DIFFERS.issue(
        f"Bit-exact steps cannot be expected here: {told}. The first difference is at step "
        f"{found.step}, in the {found.component}; it proves nothing about the run. To get it "
        f"back: {'; '.join(one.restore for one in breaking)}.",
        step=found.step,
        severity=Severity.HIGH,
        settings=names,
        component=found.component,
    )


def _unverified(steps: tuple[StepResult, ...]) -> Iterator[Issue]:
    unknown = [one for one in steps if one.status == "UNVERIFIED"]
    if unknown:
        reasons = dict.fromkeys(
            f"{part.component}: {part.reason}"
            for one in unknown
            for part in one.components
            if part.reason
        )
        yield REPLAY_UNVERIFIED.issue(
            f"{len(unknown)} of {len(steps)} steps could not be compared, the first is step "
            f"{unknown[0].step}: {'; '.join(reasons) or 'nothing of them was recorded'}.",
            step=unknown[0].step,
            unverified=len(unknown),
        )


def _component(steps: tuple[StepResult, ...], found: Divergence) -> ComponentResult | None:
    return next((one.first for one in steps if one.step == found.step and one.first), None)


def _place(found: Divergence) -> Location | None:
    parameter = found.names[0] if found.names and found.component != "rng" else None
    if found.module:
        return Location(module=found.module, parameter=parameter)
    return None if parameter is None else Location(parameter=parameter)


def _listed(names: tuple[str, ...]) -> str:
    more = len(names) - _MANY
    return ", ".join(names[:_MANY]) + (f" and {more} more" if more > 0 else "")
