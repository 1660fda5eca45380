"""Which tests run, in which order, and what stops them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from nabla_core.issue import Issue
from nabla_core.rule import Rule
from nabla_core.severity import Severity

from .assumption import drop_assumed
from .baseline import establish
from .battery.aliasing import aliased_inputs
from .battery.contract import is_custom_operator, library_contract
from .battery.forward_mode import forward_derivatives
from .battery.input_layout import input_layouts
from .battery.linearity import partial_cotangents, unusual_cotangents
from .battery.memory import explain_by_memory, written_later
from .battery.numerical import compare_with_numbers, unused_outputs
from .battery.other_sizes import other_sizes
from .battery.other_values import other_values
from .battery.precision import low_precision
from .battery.reference import compare_with_reference, reference_raises
from .battery.repetition import random_generators, repeat_backward, repeat_forward
from .battery.second_order import second_derivatives
from .battery.subsets import frozen_subsets
from .examination import Battery, Examination
from .inputs.evaluation import OperatorRaised
from .rules import (
    BACKWARD_MISMATCH,
    COTANGENT_LAYOUT,
    COTANGENT_NONLINEAR,
    CUSTOM_OP_CONTRACT,
    DOUBLE_BACKWARD_MISMATCH,
    FINITE_DIFFERENCE_MISMATCH,
    INCONCLUSIVE,
    INPUT_LAYOUT,
    JVP_MISMATCH,
    MISSING_GRADIENT,
    MUTATES_SAVED,
    NONDETERMINISTIC_BACKWARD,
    NONDETERMINISTIC_FORWARD,
    OPERATOR_EXCEPTION,
    PRECISION,
    RNG_CORRUPTED,
    STATE_LEAK,
)
from .truth.precision_choice import choose_precision

__all__ = ["run_schedule"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    """A battery and when it runs.

    Attributes:
        name: as in :attr:`CheckResult.checks`.
        option: name of the ``check_`` option.
        run: the battery.
        rule: what stays not evaluated when it does not run.
        full: only at level ``full``.
        after_faults: also when the gradient has been found wrong.
    """

    name: str
    option: str
    run: Battery
    rule: Rule
    full: bool = True
    after_faults: bool = True


def _oracle(exam: Examination) -> Iterator[Issue]:
    """The numerical derivative; beside a reference only on demand, for it defines the truth."""
    if exam.failed(NONDETERMINISTIC_FORWARD):
        exam.skip(BACKWARD_MISMATCH, "the forward is not deterministic")
    elif exam.reference is None:
        yield from compare_with_numbers(exam)
    elif exam.options.demands("finite_difference"):
        for issue in compare_with_numbers(exam):
            known = exam.failed(BACKWARD_MISMATCH, MISSING_GRADIENT)
            yield issue if known or issue.severity is Severity.INFO else _as_205(exam, issue)


def _as_205(exam: Examination, issue: Issue) -> Issue:
    name = issue.where.parameter if issue.where is not None else None
    message = f"The reference agrees, the numerical derivative does not: {issue.message}"
    return exam.verdict(FINITE_DIFFERENCE_MISMATCH, message, operand=name)


_REFERENCE = _Entry(
    name="reference",
    option="backward",
    run=compare_with_reference,
    rule=BACKWARD_MISMATCH,
    full=False,
)
_FIRST = (
    _Entry(
        name="forward repeated",
        option="determinism",
        run=repeat_forward,
        rule=NONDETERMINISTIC_FORWARD,
        full=False,
    ),
    _REFERENCE,
    _Entry(
        name="finite difference",
        option="finite_difference",
        run=_oracle,
        rule=BACKWARD_MISMATCH,
        full=False,
    ),
    _Entry(
        name="backward repeated",
        option="determinism",
        run=repeat_backward,
        rule=NONDETERMINISTIC_BACKWARD,
        full=False,
    ),
    _Entry(
        name="random generators",
        option="determinism",
        run=random_generators,
        rule=RNG_CORRUPTED,
        full=False,
    ),
)
_FULL = (
    _Entry(name="cotangents", option="linearity", run=unusual_cotangents, rule=COTANGENT_LAYOUT),
    _Entry(
        name="partial cotangents",
        option="linearity",
        run=partial_cotangents,
        rule=COTANGENT_NONLINEAR,
    ),
    _Entry(name="frozen subsets", option="backward", run=frozen_subsets, rule=BACKWARD_MISMATCH),
    _Entry(name="input layouts", option="layout", run=input_layouts, rule=INPUT_LAYOUT),
    _Entry(name="aliased inputs", option="layout", run=aliased_inputs, rule=INPUT_LAYOUT),
    _Entry(name="writes after the call", option="determinism", run=written_later, rule=STATE_LEAK),
    _Entry(
        name="forward mode",
        option="jvp",
        run=forward_derivatives,
        rule=JVP_MISMATCH,
        after_faults=False,
    ),
    _Entry(
        name="double backward",
        option="double_backward",
        run=second_derivatives,
        rule=DOUBLE_BACKWARD_MISMATCH,
        after_faults=False,
    ),
    _Entry(
        name="low precision",
        option="precision",
        run=low_precision,
        rule=PRECISION,
        after_faults=False,
    ),
    _Entry(
        name="other values",
        option="variations",
        run=other_values,
        rule=BACKWARD_MISMATCH,
        after_faults=False,
    ),
    _Entry(
        name="other sizes",
        option="variations",
        run=other_sizes,
        rule=BACKWARD_MISMATCH,
        after_faults=False,
    ),
)
_CONTRACT = _Entry(
    name="contract", option="contract", run=library_contract, rule=CUSTOM_OP_CONTRACT
)
_SUSPECT_MEMORY = (
    BACKWARD_MISMATCH,
    MISSING_GRADIENT,
    NONDETERMINISTIC_BACKWARD,
    STATE_LEAK,
    DOUBLE_BACKWARD_MISMATCH,
)


def run_schedule(exam: Examination) -> None:
    """Run every test that applies; fills ``exam.issues``, ``exam.checks`` and ``exam.skipped``."""
    choose_precision(exam)
    made = _collect(exam, "baseline", establish) and exam.base is not None
    if made:
        _examine(exam)
    _run(exam, _CONTRACT)


def _examine(exam: Examination) -> None:
    """Run what needs the baseline."""
    _collect(exam, "data", drop_assumed)
    if not exam.baseline.outputs.live or not exam.operands.live:
        _run(exam, _REFERENCE)
        _collect(exam, "gradient", unused_outputs)
        return
    for entry in _FIRST:
        _run(exam, entry)
    if exam.failed(*_SUSPECT_MEMORY):
        _collect(exam, "memory", explain_by_memory)
    unsteady = exam.failed(NONDETERMINISTIC_BACKWARD, NONDETERMINISTIC_FORWARD, MUTATES_SAVED)
    for entry in () if unsteady else _FULL:
        _run(exam, entry)


def _run(exam: Examination, entry: _Entry) -> None:
    if not exam.options.wants(entry.option, full_only=entry.full):
        if getattr(exam.options, f"check_{entry.option}") is False:
            exam.skip(entry.rule, f"dropped by check_{entry.option}=False")
        return
    if entry.run is library_contract and not _has_contract(exam):
        return
    if not entry.after_faults and exam.broken:
        exam.skip(entry.rule, "the gradient is wrong already")
        return
    if exam.out_of_time:
        exam.skip(entry.rule, f"the budget of {exam.options.budget_s} s is spent")
        return
    if _collect(exam, entry.name, entry.run):
        exam.checks.append(entry.name)
    if exam.options.demands(entry.option) and entry.rule.id in exam.skipped:
        reason = exam.skipped[entry.rule.id]
        if not any(
            issue.rule == INCONCLUSIVE.id and reason in issue.message for issue in exam.issues
        ):
            exam.issues.append(exam.note(entry.name, f"it was asked for, but {reason}"))


def _has_contract(exam: Examination) -> bool:
    custom = is_custom_operator(exam.candidate.callee.function)
    return custom or exam.options.demands("contract")


def _collect(exam: Examination, name: str, run: Callable[[Examination], Iterator[Issue]]) -> bool:
    """Collect the issues of a battery; an exception of the operator becomes an issue."""
    try:
        for issue in run(exam):
            exam.issues.append(issue)
    except OperatorRaised as raised:
        if name == "memory":
            return False
        exam.issues.append(_exception(exam, raised))
        return False
    return True


def _exception(exam: Examination, raised: OperatorRaised) -> Issue:
    if exam.base is None and reference_raises(exam, exam.operands):
        return exam.note(
            "operator", f"candidate and reference both raise, the candidate {raised.summary}"
        )
    beside = "" if exam.reference is None or exam.base is not None else " (the reference does not)"
    return exam.verdict(
        OPERATOR_EXCEPTION,
        f"The {raised.stage} raised {raised.summary}{beside}.",
        phase="backward" if "backward" in raised.stage else "forward",
        stage=raised.stage,
        exception=type(raised.error).__name__,
    )
