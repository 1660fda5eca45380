"""Says in one sentence where the first bad number of a step was born, and shows the numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from nabla_core.issue import Evidence, Issue, Location, Quantity
from nabla_core.rule import Rule

from ..facts import NumberFacts, Place
from ..rules import (
    NON_FINITE_BACKWARD,
    NON_FINITE_FORWARD,
    NON_FINITE_INPUT,
    NON_FINITE_LOSS,
    NON_FINITE_PARAMETER,
)
from .decide import blamed, consequences
from .findings import FROM_OUTSIDE, Birth, Findings

__all__ = ["explained", "follows"]

_DIFFERENT = 0.8  # something could not be done again exactly as it was
_BY_PHASE: dict[str, Rule] = {
    "data": NON_FINITE_INPUT,
    "forward": NON_FINITE_FORWARD,
    "loss": NON_FINITE_LOSS,
    "backward": NON_FINITE_BACKWARD,
    "parameter": NON_FINITE_PARAMETER,
}


def explained(numbers: NumberFacts, step: int) -> Issue | None:
    """Return the verdict that the re-execution allows, ``None`` where it allows none."""
    findings = numbers.findings
    if findings is None:
        return None
    odd = bool(numbers.inputs) and numbers.optimizer.steps > 0
    birth = blamed(findings, numbers.usual, odd_inputs=odd)
    if birth is None:
        return None
    rule = _BY_PHASE[birth.phase]
    issue = rule.issue(
        _message(birth, findings, numbers),
        step=_step(birth, numbers, step),
        where=_where(birth),
        phase=birth.phase,
        confidence=_DIFFERENT if findings.problems else 1.0,
    )
    return replace(
        issue, evidence=_evidence(birth, findings, numbers), related=_related(rule, numbers)
    )


def _step(birth: Birth, numbers: NumberFacts, step: int) -> int:
    """The step at which a parameter or buffer was written by hand: the one before, or this one."""
    written, step_at = birth.place, numbers.optimizer.step_at
    if birth.phase != "parameter" or written is None:
        return step
    before = follows(written, step_at, otherwise=birth.source != "buffer")
    return max(0, step - 1) if before else step


def follows(place: Place, step_at: Place | None, *, otherwise: bool) -> bool:
    """Whether a line stands after the step of the optimizer in the same function.

    What stands before it in a loop has run in the step that is being judged.

    Args:
        place: the line.
        step_at: where the optimizer is stepped.
        otherwise: the answer where the two are in different functions.
    """
    if step_at is None or (place.file, place.function) != (step_at.file, step_at.function):
        return otherwise
    return place.line > step_at.line


def _related(rule: Rule, numbers: NumberFacts) -> tuple[str, ...]:
    """The rules that would have spoken of what follows from this."""
    followed = []
    if numbers.loss is not None and not math.isfinite(numbers.loss):
        followed.append(NON_FINITE_LOSS)
    if numbers.gradients:
        followed.append(NON_FINITE_BACKWARD)
    return tuple(found.id for found in followed if found is not rule)


def _message(birth: Birth, findings: Findings, numbers: NumberFacts) -> str:
    if birth.source in ("parameter", "buffer"):
        held = f"{_share(birth)} of the {birth.source} {_named(birth)} {_are(birth)}"
        return f"{held} before the step{', written by hand' if birth.place else ''}."
    if birth.source in FROM_OUTSIDE:
        held = f"{_share(birth)} of {_input(birth)} {_are(birth)}"
        return f"{held} before the model runs{_first(birth)}."
    if birth.phase == "backward":
        return _backward_message(birth, findings, numbers)
    made = f"{birth.op}{_in(birth)} made {_kind(birth)} out of {_inputs(birth)}"
    return f"{made}: {_share(birth)}{_first(birth)}."


def _backward_message(birth: Birth, findings: Findings, numbers: NumberFacts) -> str:
    loss = "" if findings.loss is not None else _finite_loss(numbers)
    if not birth.node or birth.in_hook:
        by = " in a hook" if birth.in_hook else ""
        made = f"{birth.op}{by} made {_kind(birth)} of a gradient out of {_inputs(birth)}{loss}"
        return f"{made}: {_share(birth)}{_first(birth)}."
    text = f"The derivative {birth.node}{_in(birth)} is {_kind(birth)}{loss}: "
    text += f"{_share(birth)}{_first(birth)}"
    if birth.operands:
        text += f", where {birth.op} was given {_list(birth.operands)}"
    hidden = _hidden(birth, findings)
    if hidden is not None:
        text += f"; the forward {hidden.op} was already {_kind(hidden)} there, hidden from the loss"
    elif 0.0 in birth.operands and birth.is_nan:
        text += "; a zero gradient times an infinite slope is NaN"
    return text + "."


def _finite_loss(numbers: NumberFacts) -> str:
    return "" if numbers.loss is None else f" although the loss is finite ({numbers.loss:.6g})"


def _hidden(birth: Birth, findings: Findings) -> Birth | None:
    return findings.births[birth.masked] if birth.masked >= 0 else None


def _inputs(birth: Birth) -> str:
    if birth.operands:
        return f"{'finite ' if birth.inputs_finite else ''}inputs {_list(birth.operands)}"
    if birth.low is None or birth.high is None:
        return "finite inputs" if birth.inputs_finite else "inputs that were not finite"
    kind = "finite inputs" if birth.inputs_finite else "inputs"
    return f"{kind} between {birth.low:.4g} and {birth.high:.4g}"


def _in(birth: Birth) -> str:
    if birth.module is None:
        return ""
    return f" in {birth.module}" if birth.module else f" in {birth.model}"


def _named(birth: Birth) -> str:
    return f"{birth.op} of {birth.model}" if birth.model else birth.op


def _input(birth: Birth) -> str:
    if birth.source == "outside" and not birth.model:
        return "a tensor that the loss uses"
    return f"the input {_named(birth)}"


def _kind(birth: Birth) -> str:
    return birth.fault.kind


def _share(birth: Birth) -> str:
    return f"{birth.fault.nan + birth.fault.inf} of {birth.fault.size} values"


def _are(birth: Birth) -> str:
    return f"{'is' if birth.fault.size == 1 else 'are'} {birth.fault.kind}"


def _first(birth: Birth) -> str:
    where = " of the batch" if birth.in_batch else ""
    return f", first at index {list(birth.index)}{where}" if birth.index else ""


def _list(values: Iterable[float]) -> str:
    return " and ".join(f"{value:.6g}" for value in values)


def _where(birth: Birth) -> Location:
    place = _place(birth)
    held = birth.source in ("parameter", "buffer")
    return Location(
        module=birth.module,
        parameter=None if _was_made(birth) else birth.op,
        op=_op(birth),
        file=place.file if place else None,
        line=place.line if place else None,
        function=place.function if place else None,
        sample=None if held else _sample(birth),
    )


def _was_made(birth: Birth) -> bool:
    """Whether an op of the step made it, and it was not there before."""
    return birth.source in ("op", "constant")


def _op(birth: Birth) -> str:
    if birth.source in FROM_OUTSIDE:
        return "input"
    return birth.op if birth.in_hook else birth.node or birth.op


def _place(birth: Birth) -> Place | None:
    """Where an op made it or the user's code wrote it; else where it was handed to a module."""
    return birth.place if _was_made(birth) else birth.place or birth.call_place


def _sample(birth: Birth) -> int | None:
    if birth.in_batch or (birth.source in FROM_OUTSIDE and birth.index and birth.sample is None):
        return birth.index[0]
    return birth.sample


def _evidence(birth: Birth, findings: Findings, numbers: NumberFacts) -> dict[str, Evidence]:
    evidence: dict[str, Evidence] = {
        "bad_values": Quantity(value=birth.fault.nan + birth.fault.inf, unit="values", limit=0),
        "dtype": birth.fault.dtype,
        "inputs_finite": birth.inputs_finite,
        "loss": math.nan if numbers.loss is None else numbers.loss,
    }
    if len(birth.index) == 2 and birth.source in FROM_OUTSIDE:
        evidence["column"] = birth.index[1]
    if birth.node:
        evidence["op"] = birth.op
    if birth.in_hook:
        evidence["hook_of"] = birth.node
    if birth.swallowed_by:
        evidence["swallowed_by"] = birth.swallowed_by
    if birth.low is not None and birth.high is not None:
        evidence["input_low"], evidence["input_high"] = birth.low, birth.high
    hidden = _hidden(birth, findings)
    if hidden is not None:
        evidence["hidden_value"] = f"{hidden.op} of {_list(hidden.operands)} gave {_kind(hidden)}"
    if findings.problems:
        evidence["not_the_same"] = "; ".join(findings.problems)
    led_to = ", ".join(later.node or later.op for later in consequences(findings, birth))
    if led_to:
        evidence["led_to"] = led_to
    if birth.call_place is not None and birth.call_place != birth.place:
        evidence["called_at"] = str(birth.call_place)
    return evidence
