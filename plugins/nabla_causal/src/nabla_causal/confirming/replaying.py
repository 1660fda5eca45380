"""Counterfactual replays of a captured run: each hypothesis stands or falls by what they show."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from nabla_core.errors import InputError, UsageError
from nabla_replay.counterfactual.changes import Change
from nabla_replay.counterfactual.entry import what_if
from nabla_replay.counterfactual.result import Trial, WhatIf

from ..confirmation import Confirmation, Outcome
from ..hypotheses import Hypothesis, ranked
from .plan import Proposal, proposals_for

__all__ = ["confirmed"]

_MOST_TESTED = 3
_AFTER_STEPS = 10
_MOST_AFTER_STEPS = 60


def confirmed(
    hypotheses: Sequence[Hypothesis], run: Path, build: Callable[[], object]
) -> tuple[Hypothesis, ...]:
    """Return the hypotheses with what replays showed, ranked anew.

    The first three are tested, each in replays of its own steps; what was tested before is not
    tested again.

    Args:
        hypotheses: the most likely one first.
        run: folder of the captured run; its steps are counted as in the hypotheses.
        build: makes the program.
    """
    tested = [_tested(one, run, build) for one in hypotheses[:_MOST_TESTED]]
    return ranked([*tested, *hypotheses[_MOST_TESTED:]])


def _tested(hypothesis: Hypothesis, run: Path, build: Callable[[], object]) -> Hypothesis:
    proposals = proposals_for(hypothesis)
    known = {one.test for one in hypothesis.confirmations}
    if not proposals or any(str(proposal.change) in known for proposal in proposals):
        return hypothesis
    changes = [proposal.change for proposal in proposals]
    try:
        found = what_if(run, changes, build=build, until=_until(hypothesis))
    except (InputError, UsageError) as error:
        shown = [_undecided(changes[0], str(error))]
    else:
        pairs = zip(proposals, found.trials, strict=True)
        shown = [_confirmation(proposal, trial, found) for proposal, trial in pairs]
    confirmations = (*hypothesis.confirmations, *_told(shown))
    is_confirmed = any(one.outcome == "confirmed" for one in confirmations)
    return replace(
        hypothesis,
        confirmations=confirmations,
        tests=() if is_confirmed else hypothesis.tests,
    )


def _until(hypothesis: Hypothesis) -> int:
    """Long enough for what followed from it to be seen."""
    root = hypothesis.root.first_step
    last = max(transition.first_step for transition in hypothesis.chain)
    return min(last, root + _MOST_AFTER_STEPS) + _AFTER_STEPS


def _confirmation(proposal: Proposal, trial: Trial, found: WhatIf) -> Confirmation:
    outcome: Outcome = "undecided"
    if trial.outcome == "vanishes":
        outcome = "confirmed"
    elif trial.outcome == "stays" and proposal.refutes:
        outcome = "refuted"
    reason = trial.reason
    if found.cautions:
        outcome, reason = "undecided", f"{found.cautions[0]}; {reason}"
    return Confirmation(test=str(trial.change), outcome=outcome, reason=reason)


def _told(shown: list[Confirmation]) -> list[Confirmation]:
    """A gentler change that already confirms makes the stronger ones that do not idle talk."""
    if any(one.outcome == "confirmed" for one in shown):
        return [one for one in shown if one.outcome == "confirmed"]
    return shown


def _undecided(change: Change, reason: str) -> Confirmation:
    return Confirmation(test=str(change), outcome="undecided", reason=reason)
