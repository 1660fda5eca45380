"""Where in its step a program begins to differ: the module, and since when."""

from __future__ import annotations

from ..fingerprints.call_record import StepTrace, shortened, unpack_trace
from .comparing import StepResult
from .localizing import ModulePlace, locate
from .reasons import Reasons
from .window import Executed, Window

__all__ = ["place_between", "place_of", "since_when"]


def place_of(
    window: Window, one: Executed, result: StepResult, reasons: Reasons
) -> ModulePlace | None:
    """Return the place at which a step first differs from the recorded calls of its modules.

    Args:
        window: in which it was executed.
        one: the step.
        result: of comparing all else.
        reasons: told where the modules cannot be compared.
    """
    if one.trace is None:
        return None
    paths = [path for path, _ in window.program.parts.model.named_modules()]
    recorded = unpack_trace(window.segment.traces[one.index], paths)
    if recorded is None:
        reasons.add("the model has modules of other names than the recorded one")
        return None
    place = locate(recorded, shortened(one.trace))
    if place is None or result.first is not None:
        return place
    # all that was compared is equal: only what a part of the state did not cover can differ
    covered = window.fingerprinter.parts == 1
    return None if covered or place.direction == "calls" else place


def place_between(right: Window, mine: Window, index: int) -> ModulePlace | None:
    """Execute a step with two programs, and return the place at which they part."""
    there, here = _traced(right, index), _traced(mine, index)
    return None if there is None or here is None else locate(there, here)


def _traced(window: Window, index: int) -> StepTrace | None:
    start = window.restore(index)
    executed = window.run(start, index, lambda known: known == index)
    return [one.trace for one in executed][-1]


def since_when(window: Window, index: int, component: str) -> int | None:
    """Return the step after the one in which the same part of the state was last compared."""
    steps = window.segment.steps
    of_part = component in ("gradient", "buffer", "parameter", "extra")
    part = next(iter(steps[index].vectors), None) if of_part else None
    before = range(index - 1, -1, -1)
    if part is not None and not steps[index].is_brief:
        earlier = next((at for at in before if part in steps[at].vectors), -1)
    elif of_part:
        return None
    else:
        earlier = next((at for at in before if not steps[at].is_brief), index - 1)
    return steps[earlier + 1].step if earlier + 1 < index else None
