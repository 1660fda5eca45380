"""Notes between the steps of a log: what they are called, and what they say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from torch.optim import Optimizer

from nabla_core.artifacts.strict_json import JsonObject

from ..store.entries import NoteEntry

__all__ = [
    "EVALUATED_NOTE",
    "LOADED_NOTE",
    "PACE_NOTE",
    "SETTINGS_NOTE",
    "SKIPPED_NOTE",
    "SNAPSHOT_NOTE",
    "STATE_NOTE",
    "TRACE_NOTE",
    "WITHIN_NOTE",
    "Within",
    "between_notes",
    "within_notes",
]

EVALUATED_NOTE = "evaluated"
"""Says that modules were called without gradients since the step before."""

SETTINGS_NOTE = "settings"
"""Says how the modules were set in the step whose record follows."""

SKIPPED_NOTE = "skipped"
"""Says which batches were taken for the step whose record follows, and had no part in it."""

SNAPSHOT_NOTE = "snapshot"
"""Says where in the log a checkpoint was taken: it is written later, in the background."""

STATE_NOTE = "state"
"""Holds digests of the state as it was saved, or left, after a step that was recorded in brief."""

LOADED_NOTE = "loaded"
"""Says that a state was put into the model since the step before."""

PACE_NOTE = "pace"
"""Says from where on the state has so many ``parts``, and one of ``every`` steps is looked at."""

TRACE_NOTE = "modules"

WITHIN_NOTE = "within"
"""Says that steps are recorded when the optimizer has acted, before the rest of the step; of
several optimizers, ``ends`` is the index of the one that does so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Within:
    """A step that is recorded when its optimizer has acted.

    Attributes:
        ending: id of the optimizer that ends a step.
        evaluations: calls without gradients since the step before.
        loads: how often a state was put into the model since then.
    """

    ending: int | None = None
    evaluations: int = 0
    loads: int = 0


def within_notes(
    within: Within, optimizers: Sequence[Optimizer], *, first: bool
) -> Iterator[NoteEntry]:
    """Yield what has to be said before the record of a step.

    Args:
        within: what is known of it.
        optimizers: of the program.
        first: whether it is the first one.
    """
    if first:
        turns = {id(one): turn for turn, one in enumerate(optimizers)}
        turn = turns.get(within.ending) if within.ending and len(turns) > 1 else None
        body: JsonObject = {} if turn is None else {"ends": turn}
        yield NoteEntry(name=WITHIN_NOTE, body=body)
    yield from between_notes(within.evaluations, within.loads)


def between_notes(evaluations: int, loads: int) -> Iterator[NoteEntry]:
    """Yield what has to be said of what happened before a step.

    Args:
        evaluations: calls without gradients.
        loads: how often other values were put into the model.
    """
    if evaluations:
        yield NoteEntry(name=EVALUATED_NOTE, body={"calls": evaluations})
    if loads:
        yield NoteEntry(name=LOADED_NOTE, body={"calls": int(loads)})
