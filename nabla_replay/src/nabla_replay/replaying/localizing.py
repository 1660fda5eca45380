"""Finds the module in which two executions of one step begin to differ, and in which direction.

A call is where it begins when what it was given is right and what it gave is wrong. A module that
contains others returns after them, so that the innermost one is found first; code of its own
between two of them shows as right inputs and wrong outputs of the module itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..fingerprints.call_record import CallKey, ModuleCall, StepTrace

__all__ = ["Direction", "ModulePlace", "locate"]

Direction = Literal["input", "calls", "forward", "loss", "backward", "optimizer"]
"""``input``: the model was given something else; ``calls``: other modules were called; ``loss``:
the gradient that reaches the model's output; ``optimizer``: nothing in the model differs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModulePlace:
    """Where a step begins to differ.

    Attributes:
        module: dotted path; ``""`` is the model itself.
        call: 1-based number of its call in the step.
        direction: what of it differs first.
    """

    module: str
    call: int
    direction: Direction

    def __str__(self) -> str:
        name = f"module {self.module}" if self.module else "the model's own code"
        again = f" (call {self.call})" if self.call > 1 else ""
        return {
            "input": "what the model was given",
            "calls": f"the calls of {name}{again}",
            "forward": f"the forward pass of {name}{again}",
            "loss": "the loss, behind the model",
            "backward": f"the backward pass of {name}{again}",
            "optimizer": "the optimizer, behind the gradients",
        }[self.direction]


def locate(recorded: StepTrace, replayed: StepTrace) -> ModulePlace | None:
    """Return where the two differ first; ``None`` if they do not."""
    if recorded.calls.keys() != replayed.calls.keys():
        return _other_calls(recorded, replayed)
    found = _forward(recorded, replayed) or _backward(recorded, replayed)
    if found is None or found.direction != "backward":
        return found
    return _no_longer_handed_through(found, recorded, replayed) or found


def _other_calls(recorded: StepTrace, replayed: StepTrace) -> ModulePlace:
    pairs = zip(recorded.calls, replayed.calls, strict=False)
    known = next((one for one, other in pairs if one != other), None)
    if known is None:
        longer = max(recorded.calls, replayed.calls, key=len)
        known = list(longer)[min(len(recorded.calls), len(replayed.calls))]
    return ModulePlace(module=known[0], call=known[1], direction="calls")


def _forward(recorded: StepTrace, replayed: StepTrace) -> ModulePlace | None:
    wrong: CallKey | None = None
    for key, there in recorded.calls.items():
        here = replayed.calls[key]
        if there.outputs == here.outputs:
            continue
        if there.inputs == here.inputs:
            return ModulePlace(module=key[0], call=key[1], direction="forward")
        wrong = wrong or key
    if wrong is None:
        return None
    return ModulePlace(module="", call=1, direction="input")


def _backward(recorded: StepTrace, replayed: StepTrace) -> ModulePlace | None:
    reached = _rightly_reached(recorded, replayed)
    for key in recorded.backward:
        there, here = recorded.calls[key], replayed.calls[key]
        if there.grad_outputs is None or there.grad_outputs != here.grad_outputs:
            continue
        own = key[0] in reached and _differs(key[0], recorded, replayed)
        if there.grad_inputs != here.grad_inputs or own:
            return ModulePlace(module=key[0], call=key[1], direction="backward")
    wrong = _first_wrongly_reached(recorded, replayed)
    if wrong is not None:
        return _outside(wrong, recorded, replayed)
    own_wrong = [path for path in recorded.gradients if _differs(path, recorded, replayed)]
    if own_wrong:
        return ModulePlace(module=own_wrong[-1], call=1, direction="backward")
    return None


def _no_longer_handed_through(
    around: ModulePlace, recorded: StepTrace, replayed: StepTrace
) -> ModulePlace | None:
    """A module inside the one that was found, which gave back its very input and does so no more.

    Such a module has no backward pass of its own in the record, and so nothing to compare.
    """
    inside = f"{around.module}." if around.module else ""
    for path, call in replayed.backward:
        before = recorded.calls[path, call]
        if before.grad_outputs is None and path.startswith(inside) and path != around.module:
            return ModulePlace(module=path, call=call, direction="backward")
    return None


def _rightly_reached(recorded: StepTrace, replayed: StepTrace) -> set[str]:
    """Modules all of whose calls were reached by the right gradients: only of them do the
    gradients of their parameters say something about the module itself."""
    wrong = {
        path
        for (path, call), there in recorded.calls.items()
        if there.grad_outputs != replayed.calls[path, call].grad_outputs
    }
    return {path for path, _ in recorded.calls} - wrong


def _first_wrongly_reached(recorded: StepTrace, replayed: StepTrace) -> CallKey | None:
    return next(
        (
            key
            for key in recorded.backward
            if recorded.calls[key].grad_outputs != replayed.calls[key].grad_outputs
        ),
        None,
    )


def _outside(wrong: CallKey, recorded: StepTrace, replayed: StepTrace) -> ModulePlace:
    """The innermost module around a call whose own output was reached rightly, or the loss."""
    path = wrong[0]
    while path:
        path = path.rpartition(".")[0]
        around: ModuleCall | None = recorded.calls.get((path, 1))
        if around is None or around.grad_outputs is None:
            continue
        if around.grad_outputs == replayed.calls[path, 1].grad_outputs:
            return ModulePlace(module=path, call=1, direction="backward")
    return ModulePlace(module="", call=1, direction="loss")


def _differs(path: str, recorded: StepTrace, replayed: StepTrace) -> bool:
    return recorded.gradients.get(path) != replayed.gradients.get(path)
