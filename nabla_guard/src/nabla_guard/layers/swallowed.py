"""An infinity inside a model that the next op turned into a wrong finite number.

``x * rsqrt(mean(x * x))`` gives zeros once ``x * x`` overflows: no loss, gradient or output of a
root module is ever infinite. The range of a leaf module's output shows it, and the step is executed
again to see which op overflowed and what became of it.
"""

from __future__ import annotations

from dataclasses import replace

from ..facts import NumberFacts
from ..loop.book import OptimizerRecord
from ..loop.reading import StepReading
from ..loop.signals import total_norm
from ..origin.findings import Birth, Findings

__all__ = ["swallowed_numbers"]

_WRONG = frozenset({"div", "pow", "reciprocal", "rsqrt", "true_divide"})
"""Ops that give a finite but wrong result for an infinity which stands for a large number. The
limits of exp, sigmoid, tanh, erf and softmax are right to the last bit."""


def swallowed_numbers(
    record: OptimizerRecord, reading: StepReading, findings: Findings | None
) -> NumberFacts | None:
    """Return the state of a step in which an overflow was turned into a wrong finite number.

    Args:
        record: the optimizer that is about to step.
        reading: what was measured; everything is finite.
        findings: what executing the step again has shown.

    Returns:
        ``None`` when no overflow, or only one that does no harm, was seen.
    """
    birth = next(filter(_is_wrong, findings.births), None) if findings is not None else None
    if findings is None or birth is None:
        return None
    return NumberFacts(
        optimizer=record.facts,
        loss=reading.loss,
        gradient_count=reading.gradient_count,
        param_norm=total_norm(reading.parameters),
        outputs_seen=True,
        gradients_were_finite=record.finite,
        findings=replace(findings, gradients=frozenset({birth.number})),
    )


def _is_wrong(birth: Birth) -> bool:
    """Whether an overflow of the forward pass was divided by, or the like, and never selected."""
    return (
        birth.overflow
        and birth.phase in ("forward", "loss")
        and birth.swallowed_by in _WRONG
        and not birth.selected_away
    )
