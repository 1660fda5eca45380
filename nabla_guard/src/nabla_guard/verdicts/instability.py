"""NUM111, NUM112, NUM121, NUM122 and NUM151: what a float64 shadow of the step does not confirm."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from nabla_core.issue import Issue, Location, Quantity
from nabla_core.records import StepRecord
from nabla_core.rule import Rule
from nabla_core.severity import Severity

from ..facts import LoopFacts, Place
from ..origin.traits import is_selection
from ..rules import (
    CANCELLATION,
    NON_FINITE_FORWARD,
    NON_FINITE_LOSS,
    NUMERICAL_INSTABILITY,
    OVERFLOW_RISK,
    SHADOW_UNSUPPORTED,
    UNDERFLOW,
)
from ..shadow.findings import WHOLE_STEP, OpError, RangeRisk, RegionError, Sample, Unsupported
from ..shadow.jumps import LossJumps
from ..shadow.limits import ShadowLimits
from ..shadow.overflow_flag import OverflowFlag
from ..shadow.watch import ShadowWatch

__all__ = ["InstabilityDetector", "judge_sample"]

_SUMS = frozenset(
    {"add", "addcmul", "cumsum", "diff", "mean", "rsub", "sub", "sum", "var", "var_mean"}
)
_SMALL_LOSS_CHANGE = 1e-2
_WORTHLESS_LOSS = 0.5
_NOTHING_LEFT = 2.0**22  # operands over result: no digit of float32 is left


class InstabilityDetector:
    """Reports what the latest shadow sample found."""

    rules = (NUMERICAL_INSTABILITY, CANCELLATION, OVERFLOW_RISK, UNDERFLOW, SHADOW_UNSUPPORTED)

    def __init__(self, facts: LoopFacts, undecide: Callable[[Rule, str], None]) -> None:
        self._undecide = undecide
        self._watch = facts.gather(ShadowWatch)
        self._jumps = LossJumps()
        self._overflow = OverflowFlag()
        self._unsupported: set[str] = set()

    @property
    def patient(self) -> bool:
        """Without samples there is nothing to judge, and no jump that deserves one."""
        return self._watch.loop.shadow == "off"

    def step(self, record: StepRecord) -> Iterable[Issue]:
        """Judge the sample of this step, if one was taken.

        A loss that jumps deserves one, and so does an overflow that no output shows.
        """
        jumped = self._jumps.jumped(record.signals.get("loss"), record.step)
        if self._overflow.raised() or jumped:
            self._watch.look()
        return self._judge() if self._watch.fresh else ()

    def finish(self) -> Iterable[Issue]:
        """Judge samples that were taken while nobody looked."""
        return self._judge()

    def _judge(self) -> Iterator[Issue]:
        for sample in self._watch.take():
            new = [found for found in sample.unsupported if found.what not in self._unsupported]
            self._unsupported |= {found.what for found in new}
            sample.unsupported = [found for found in new if found.what != WHOLE_STEP]
            for found in new:
                if found.what == WHOLE_STEP:
                    self._say(f"step {sample.step} has no float64 shadow: {found.reason}")
            yield from judge_sample(sample)

    def _say(self, reason: str) -> None:
        for rule in self.rules:
            if rule is not SHADOW_UNSUPPORTED:
                self._undecide(rule, reason)


def judge_sample(sample: Sample) -> Iterator[Issue]:
    """Yield the issues of one sample, wrong numbers first."""
    step = sample.step
    for error in sample.errors:
        if not error.gradient_free or error.error >= _WORTHLESS_LOSS:
            swallowed = error.first.hidden_by and not is_selection(error.first.hidden_by)
            yield _swallowed_issue(error, step) if swallowed else _error_issue(error, step)
    for risk in sample.risks:
        yield _risk_issue(risk, step)
    for missing in sample.unsupported:
        yield _unsupported_issue(missing, step)


def _error_issue(error: RegionError, step: int) -> Issue:
    first, limits = error.first, ShadowLimits()
    ratio = error.error / error.explained if error.explained else math.inf
    evidence: dict[str, Quantity] = {
        "relative_error": Quantity(value=error.error, limit=error.limit),
        "error_over_condition": Quantity(value=ratio, limit=limits.conditioning_ratio),
        "op_error": Quantity(value=first.error, limit=error.limit),
    }
    if math.isfinite(first.local):
        evidence["op_alone"] = Quantity(value=first.local)
    severity = None
    if error.loss is not None and error.loss_in_float64 is not None:
        evidence["loss"] = Quantity(value=error.loss)
        evidence["loss_in_float64"] = Quantity(value=error.loss_in_float64)
        severity = None if _moves(error.loss, error.loss_in_float64) else Severity.MEDIUM
    if error.gradient_free:
        severity = Severity.INFO  # the number is wrong, and nothing is learnt from it
    cancelled = _has_cancelled(first, limits.cancellation_ratio)
    if cancelled and severity is Severity.MEDIUM and _lost(first) >= _NOTHING_LEFT:
        severity = Severity.INFO  # zero but for rounding, and the loss does not depend on it
    flushed = first.flushed >= limits.flushed_share
    rule = UNDERFLOW if flushed else CANCELLATION if cancelled else NUMERICAL_INSTABILITY
    if flushed:
        evidence["flushed_share"] = Quantity(value=first.flushed, limit=limits.flushed_share)
    elif cancelled:
        evidence["operands_over_result"] = Quantity(
            value=_lost(first), limit=limits.cancellation_ratio
        )
    return rule.issue(
        _message(error, flushed=flushed, cancelled=cancelled),
        step=step,
        where=_where(first.place, error.module, first.op),
        phase="loss" if error.module is None else "forward",
        severity=severity,
        confidence=1.0,
        dtype=first.dtype,
        **evidence,
    )


def _swallowed_issue(error: RegionError, step: int) -> Issue:
    """An infinity out of finite inputs that a later op of the same code computed with."""
    first = error.first
    rule = NON_FINITE_LOSS if error.module is None else NON_FINITE_FORWARD
    where = _where(first.place, error.module, first.op)
    subject = "outside of modules" if error.module is None else f"in {_name(error)}"
    return rule.issue(
        f"{first.op} {subject} overflows {first.dtype}, and {first.hidden_by} makes a finite "
        f"number of the infinity: the result is off by {error.error:.2g} of its size against "
        f"float64 (limit {error.limit:.2g}).",
        step=step,
        where=replace(where, sample=first.sample),
        phase="loss" if error.module is None else "forward",
        relative_error=Quantity(value=error.error, limit=error.limit),
        swallowed_by=first.hidden_by,
        dtype=first.dtype,
    )


def _message(error: RegionError, *, flushed: bool, cancelled: bool) -> str:
    first = error.first
    if error.whole:
        subject, inputs = "The loss", "batch and parameters"
    else:
        place = "outside of modules" if error.module is None else f"in {_name(error)}"
        subject, inputs = f"The result computed {place}", "its inputs"
    if flushed:
        what = (
            f"{first.flushed:.0%} of the results of {first.op} are too small for {first.dtype} "
            "and are flushed or lose digits"
        )
    elif cancelled:
        what = (
            f"{first.op} cancels: operands of size {first.operands:.3g} leave {first.result:.3g}, "
            f"with a relative error of {first.error:.2g} in {first.dtype}"
        )
    elif math.isinf(first.error):
        what = f"{first.op} overflows {first.dtype}, and a later op hides the infinity"
    else:
        what = f"{first.op} has a relative error of {first.error:.2g} in {first.dtype}"
    return (
        f"{subject} is off by {error.error:.2g} of its size against float64 (limit "
        f"{error.limit:.2g}; four roundings of {inputs} explain {error.explained:.1g}): {what}."
    )


def _name(error: RegionError) -> str:
    return f"module {error.module}" if error.module else error.model


def _has_cancelled(first: OpError, ratio: float) -> bool:
    return first.op in _SUMS and first.local < first.error / 2 and _lost(first) >= ratio


def _lost(first: OpError) -> float:
    """Size of the operands over that of the result."""
    return first.operands / first.result if first.result else math.inf


def _moves(loss: float, truth: float) -> bool:
    """Whether the error reaches the loss."""
    return not abs(loss - truth) <= _SMALL_LOSS_CHANGE * max(abs(loss), abs(truth))


def _risk_issue(risk: RangeRisk, step: int) -> Issue:
    rule = UNDERFLOW if risk.kind == "flush" else OVERFLOW_RISK
    if risk.kind == "flush":
        text = (
            f"Every result of {risk.op} is below {risk.limit:.3g} (largest {risk.value:.2g} in "
            f"float64), where {risk.dtype} loses digits and then everything."
        )
    elif risk.kind == "exp":
        text = (
            f"{risk.op} was given {risk.value:.4g}; above {risk.limit:.4g} its result is infinite "
            f"in {risk.dtype}."
        )
    else:
        text = (
            f"The result of {risk.op} reaches {risk.value:.4g} in {risk.dtype}, whose largest "
            f"number is {risk.limit:.5g} (limit {risk.limit / 4:.5g})."
        )
    return rule.issue(
        text,
        step=step,
        where=_where(risk.place, risk.module, risk.op),
        phase="loss" if risk.module is None else "forward",
        value=Quantity(value=risk.value, limit=risk.limit),
        dtype=risk.dtype,
    )


def _unsupported_issue(missing: Unsupported, step: int) -> Issue:
    return SHADOW_UNSUPPORTED.issue(
        f"No float64 shadow of {missing.what}: {missing.reason}.",
        step=step,
        where=Location(op=missing.what) if "::" in missing.what else None,
        reason=missing.reason,
    )


def _where(place: Place | None, module: str | None, op: str) -> Location:
    return Location(
        file=place.file if place else None,
        line=place.line if place else None,
        function=place.function if place else None,
        module=module,
        op=op,
    )
