"""NUM101 to NUM105: where the first NaN or Inf of a run was born, by exact exclusion.

The order of the questions decides: parameters before the forward pass, then the batch, the model's
outputs, the loss, the gradients. The first that is not finite names the phase; what follows from it
is
not reported. The detector speaks again only after a step in which everything was finite.

Source: the deciding rules at the end of section 4 of the project's notes on guarding live loops.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from nabla_core.detector import Detector
from nabla_core.issue import Issue, Location, Quantity
from nabla_core.records import StepRecord
from nabla_core.severity import Severity

from ..facts import LoopFacts, LoopSource, NumberFacts, Place, TensorFault
from ..origin.explain import explained, follows
from ..rules import (
    NON_FINITE_BACKWARD,
    NON_FINITE_FORWARD,
    NON_FINITE_INPUT,
    NON_FINITE_LOSS,
    NON_FINITE_PARAMETER,
    NON_FINITE_RULES,
)

if TYPE_CHECKING:
    from ..loop.lone_passes import LonePasses
    from ..loop.open_passes import OpenPasses

__all__ = ["NonFiniteDetector", "detectors_for"]

_HUGE_NORM = 1e15  # one more product of such weights overflows float32, whatever the data
_RUNAWAY_RMS = 1e4  # root mean square of a parameter that grew as many times over


def detectors_for(source: object) -> Iterable[Detector]:
    """Return the detectors of NUM rules for a live loop, none for another source."""
    return [NonFiniteDetector(source.facts)] if isinstance(source, LoopSource) else []


def _lone_passes(facts: LoopFacts) -> LonePasses:
    """The watch over passes that no step follows."""
    from ..loop.lone_passes import LonePasses

    return facts.gather(LonePasses)


def _open_passes(facts: LoopFacts) -> OpenPasses:
    """The watch over passes after which a loop was left."""
    from ..loop.open_passes import OpenPasses

    return facts.gather(OpenPasses)


class NonFiniteDetector:
    """Reports the first non-finite number of a run, once, with its phase."""

    rules = NON_FINITE_RULES
    patient = True

    def __init__(self, facts: LoopFacts) -> None:
        self._facts = facts
        self._reported: set[int] = set()
        self._first_norms: dict[int, float] = {}
        self._lone = _lone_passes(facts)
        self._open = _open_passes(facts)

    def step(self, record: StepRecord) -> Iterable[Issue]:
        """Judge a step; at once over when everything is finite."""
        numbers = self._facts.numbers
        key = id(self._facts.stepping)
        if key not in self._first_norms:
            self._first_norms[key] = record.signals.get("param_norm", math.inf)
        if self._lone.found:
            return self._lonely(self._lone)
        if numbers is None:
            self._reported.discard(key)
            return ()
        first = not self._reported  # what other optimizers see meanwhile follows from it
        self._reported.add(id(numbers.optimizer))
        return (self._verdict(numbers, record.step),) if first else ()

    def _lonely(self, lone: LonePasses | OpenPasses) -> Iterator[Issue]:
        """Judge bad passes that no step followed."""
        found, lone.found = lone.found, []
        for bad in found:
            issue = self._verdict(bad.numbers, bad.step)
            # skipping a step is what a scaler is for: nothing was lost
            yield replace(issue, severity=Severity.INFO) if bad.recovered else issue

    def finish(self) -> Iterator[Issue]:
        """Judge what the last step left in the parameters, and passes without a step."""
        yield from self._lonely(self._lone)
        if self._reported:
            return
        is_open = bool(self._open.found)
        yield from self._lonely(self._open)
        numbers = self._facts.last_numbers
        if numbers is not None and not is_open:
            yield _parameter_issue(numbers, self._facts.step_of(numbers.optimizer))

    def _verdict(self, numbers: NumberFacts, step: int) -> Issue:
        if numbers.parameters:
            return _parameter_issue(numbers, self._facts.step_of(numbers.optimizer))
        last_step = self._facts.step_of(numbers.optimizer)
        limit = self._norm_limit(numbers)
        if numbers.param_norm > limit and last_step >= 0:
            return _huge_issue(numbers, last_step, limit)
        found = explained(numbers, step)
        return _undecided(self._at_the_boundary(numbers, step), numbers) if found is None else found

    def _norm_limit(self, numbers: NumberFacts) -> float:
        """The norm above which weights have run away: for their dtype, or for where they began."""
        first = self._first_norms.get(id(numbers.optimizer), math.inf)
        size = sum(parameter.size for parameter in numbers.optimizer.parameters)
        return min(_HUGE_NORM, _RUNAWAY_RMS * max(first, math.sqrt(size))) if size else _HUGE_NORM

    @staticmethod
    def _at_the_boundary(numbers: NumberFacts, step: int) -> Issue:
        """The phase, by exclusion, where no birth could be shown."""
        if numbers.inputs:
            return _input_issue(numbers, step)
        if numbers.output is not None:
            return _forward_issue(numbers, step)
        if numbers.loss is not None and not math.isfinite(numbers.loss):
            return _loss_issue(numbers, step)
        return _backward_issue(numbers, step)


def _undecided(issue: Issue, numbers: NumberFacts) -> Issue:
    """Say why the op and its line are not named."""
    if numbers.findings is None:
        return issue
    reason = "; ".join(numbers.findings.problems) or "no op was worse than its inputs"
    text = f"The op and its line are not decided: {reason}."
    return replace(
        issue,
        evidence={**issue.evidence, "not_decided": reason},
        limitation=f"{text} {issue.limitation}",
    )


def _parameter_issue(numbers: NumberFacts, last_step: int) -> Issue:
    fault = numbers.parameters[0]
    held = f"{_share(fault)} of parameter {fault.name or 'without a name'} ({fault.dtype})"
    if last_step < 0 or numbers.written_elsewhere:
        return _written_issue(numbers, held, last_step)
    settings = ", ".join(f"{name} {value:g}" for name, value in numbers.settings)
    return NON_FINITE_PARAMETER.issue(
        f"{held} became {fault.kind} in {numbers.optimizer.name}.step although every gradient of "
        f"that step was finite ({settings}).",
        step=last_step,
        where=_where(numbers.optimizer.step_at, fault.name, f"{numbers.optimizer.name}.step"),
        phase="optimizer",
        bad_values=_bad(fault),
        dtype=fault.dtype,
    )


def _written_issue(numbers: NumberFacts, held: str, last_step: int) -> Issue:
    """A parameter that something else than the optimizer has made what it is."""
    fault = numbers.parameters[0]
    step, moment = max(last_step, 0), f"after step {last_step}"
    cause = "it was written outside the optimizer"
    if last_step < 0:
        moment = "before the first step"
        if numbers.written_at is None:
            cause = "it was not finite when training began"
    elif numbers.written_at is not None and not follows(
        numbers.written_at, numbers.optimizer.step_at, otherwise=True
    ):
        step += 1  # written before the pass that is being judged
    return NON_FINITE_PARAMETER.issue(
        f"{held} are {fault.kind} {moment}: {cause}.",
        step=step,
        where=_where(numbers.written_at or numbers.optimizer.step_at, fault.name),
        phase="parameter",
        bad_values=_bad(fault),
        dtype=fault.dtype,
    )


def _huge_issue(numbers: NumberFacts, last_step: int, limit: float) -> Issue:
    settings = ", ".join(f"{name} {value:g}" for name, value in numbers.settings)
    name = numbers.optimizer.name
    return NON_FINITE_PARAMETER.issue(
        f"{name}.step left parameters of norm {numbers.param_norm:.3g} (limit {limit:.3g}), "
        f"from which the next forward pass overflowed ({settings}).",
        step=last_step,
        where=_where(numbers.optimizer.step_at, op=f"{name}.step"),
        phase="optimizer",
        param_norm=Quantity(value=numbers.param_norm, limit=limit),
        settings=settings,
    )


def _input_issue(numbers: NumberFacts, step: int) -> Issue:
    fault = numbers.inputs[0]
    place = f"first at index {list(fault.index)}" if fault.index else "a scalar"
    module, _, argument = fault.name.partition(" ")
    return NON_FINITE_INPUT.issue(
        f"{_share(fault)} of the input {fault.name} are {fault.kind} before the model runs, "
        f"{place}.",
        step=step,
        where=Location(
            module=module,
            parameter=argument or None,
            sample=fault.index[0] if fault.index else None,
        ),
        phase="data",
        bad_values=_bad(fault),
        dtype=fault.dtype,
    )


def _forward_issue(numbers: NumberFacts, step: int) -> Issue:
    fault = numbers.output
    name, kind = (fault.name, fault.kind) if fault else ("", "NaN")
    return NON_FINITE_FORWARD.issue(
        f"The output of {name} is {kind} although its inputs and all parameters are finite.",
        step=step,
        where=_where(numbers.loss_at, module=name),
        phase="forward",
        loss=_number(numbers.loss),
    )


def _loss_issue(numbers: NumberFacts, step: int) -> Issue:
    seen = numbers.outputs_seen
    because = (
        "although the model's outputs and all parameters are finite"
        if seen
        else "although all parameters are finite; not every output of the model could be seen, "
        "so it may also come from the forward pass"
    )
    return NON_FINITE_LOSS.issue(
        f"The loss is {_number(numbers.loss)} {because}.",
        step=step,
        where=_where(numbers.loss_at),
        phase="loss",
        confidence=1.0 if seen else 0.6,
        loss=_number(numbers.loss),
        faulty_gradients=Quantity(value=len(numbers.gradients), unit="tensors", limit=0),
    )


def _backward_issue(numbers: NumberFacts, step: int) -> Issue:
    fault = numbers.gradients[0]
    loss = "not seen" if numbers.loss is None else f"{numbers.loss:.6g}"
    return NON_FINITE_BACKWARD.issue(
        f"{len(numbers.gradients)} of {numbers.gradient_count} gradients are not finite (first "
        f"{fault.name or 'without a name'}: {_share(fault)} {fault.kind}) although the loss is "
        f"finite ({loss}) and so are all parameters.",
        step=step,
        where=_where(numbers.loss_at, fault.name),
        phase="backward",
        faulty_gradients=Quantity(value=len(numbers.gradients), unit="tensors", limit=0),
        bad_values=_bad(fault),
        dtype=fault.dtype,
    )


def _where(
    place: Place | None, parameter: str = "", op: str | None = None, module: str | None = None
) -> Location:
    return Location(
        file=place.file if place else None,
        line=place.line if place else None,
        function=place.function if place else None,
        parameter=parameter or None,
        module=module,
        op=op,
    )


def _share(fault: TensorFault) -> str:
    return f"{fault.nan + fault.inf} of {fault.size} values"


def _bad(fault: TensorFault) -> Quantity:
    return Quantity(value=fault.nan + fault.inf, unit="values", limit=0)


def _number(value: float | None) -> str:
    if value is None:
        return "not seen"
    return f"{value:.6g}"
