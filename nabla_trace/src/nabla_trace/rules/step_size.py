"""Rules about the size of the optimizer's steps."""

from __future__ import annotations

from nabla_core.rule import Example, Rule
from nabla_core.severity import Severity

__all__ = [
    "RULES",
    "STEP_ABOVE_NOISE",
    "STEP_EARLY_JUMP",
    "STEP_NOT_DESCENT",
    "STEP_TOO_SMALL",
]

STEP_TOO_SMALL = Rule(
    id="GEO301",
    name="step-too-small",
    summary="The steps stay far before the minimum along their own direction.",
    rationale="Training takes many times the steps that it needs.",
    fix="Raise the learning rate by three to ten; keep the schedule.",
    limits="A parabola through the loss before and after the step, on the batch of the step. "
    "At an early warm-up small steps are intended. Information only where the steps so far have "
    "room for the whole way, or the loss has halved: then training is slower than it could be, "
    "which may be meant (fine-tuning, the end of a schedule).",
    severity=Severity.LOW,
    since="0.1",
    example=Example(
        bad="optimizer = Adam(parameters, lr=1e-6)\n",
        good="optimizer = Adam(parameters, lr=1e-3)\n",
    ),
)

STEP_ABOVE_NOISE = Rule(
    id="GEO302",
    name="step-above-noise-floor",
    summary="On fresh data the steps end at or beyond the mirror point of the minimum.",
    rationale="At this batch size the steps undo each other: the loss cannot fall below the floor"
    " that they make.",
    fix="Lower the learning rate, or raise the batch size; at the end of training this is "
    "the time to decay.",
    limits="Judged on the next batch. In a stationary state this is so by construction: the "
    "run is at its noise floor and need not diverge. Information only while the loss is below one "
    "and a half of its start.",
    severity=Severity.LOW,
    since="0.1",
    example=Example(
        bad="optimizer = Adam(parameters, lr=1e-1)\n",
        good="optimizer = Adam(parameters, lr=1e-3)\n",
    ),
)

STEP_EARLY_JUMP = Rule(
    id="GEO303",
    name="step-early-jump",
    summary="One of the first steps raised the loss on fresh data by a large share of its first"
    " value.",
    rationale="The start of the run is thrown far away, and some units never come back.",
    fix="Use a warm-up or a lower learning rate.",
    limits="The first six steps only; very noisy batches can jump by themselves. Silent about a "
    "rise of up to the first loss that is made up for within these steps, and of one of up to ten "
    "first losses once the loss has fallen below half of its start.",
    severity=Severity.MEDIUM,
    since="0.1",
    example=Example(
        bad="optimizer = SGD(parameters, lr=3.0, momentum=0.9)\n",
        good="optimizer = SGD(parameters, lr=0.03, momentum=0.9)\n",
    ),
)

STEP_NOT_DESCENT = Rule(
    id="GEO304",
    name="step-not-descent",
    summary="The steps point uphill on their own batch.",
    rationale="The optimizer moves against the gradient it was given.",
    fix="Look for a sign error, maximize=True, or gradients of another loss; high momentum "
    "near a minimum does this for a while.",
    limits="The inner product of gradient and step. Momentum overshoots: more than half of the"
    " probes must agree.",
    severity=Severity.MEDIUM,
    since="0.1",
    example=Example(
        bad="parameter.data += lr * parameter.grad\n",
        good="parameter.data -= lr * parameter.grad\n",
    ),
)

RULES = (
    STEP_TOO_SMALL,
    STEP_ABOVE_NOISE,
    STEP_EARLY_JUMP,
    STEP_NOT_DESCENT,
)
