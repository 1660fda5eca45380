"""Rules about what a trace does not know."""

from __future__ import annotations

from nabla_core.rule import Example, Rule
from nabla_core.severity import Severity

__all__ = [
    "COVERAGE_INCOMPLETE",
    "RULES",
    "SAMPLES_COUPLED",
    "SELF_CHECK_FAILED",
]

COVERAGE_INCOMPLETE = Rule(
    id="GEO901",
    name="coverage-incomplete",
    summary="Some parameters are not part of the result, or it could not be checked.",
    rationale="What is said of the batch is said of the other parameters only. A gradient that is "
    "not finite has no length that could be compared.",
    fix="Give a rule for the layer (nabla.trace.rule_for), a loss per sample, or choose the"
    " parameters.",
    limits="Names what is missing; the rest is right.",
    severity=Severity.LOW,
    since="0.1",
    example=Example(
        bad="nabla.trace.samples(model, contrastive_mean_loss, batch)\n",
        good="nabla.trace.samples(model, contrastive_loss_per_sample, batch)\n",
    ),
)

SAMPLES_COUPLED = Rule(
    id="GEO902",
    name="samples-not-independent",
    summary="The gradients are not those of the samples taken alone.",
    rationale="A layer normalises over the batch or draws random numbers, or the loss weighs or "
    "compares samples: in another batch, or another draw, the same sample has another gradient.",
    fix="Read the result as a decomposition of this batch's gradient, or trace in eval mode and "
    "with a loss per sample.",
    limits="The decomposition sums to the batch gradient; it is no set of independent gradients."
    " Of a loss that only the model knows, how it adds up is not found out.",
    severity=Severity.INFO,
    since="0.1",
    aliases=("samples-coupled",),
    example=Example(
        bad="model.train()  # with BatchNorm\nnabla.trace.samples(model, loss_fn, batch)\n",
        good="model.eval()\nnabla.trace.samples(model, loss_fn, batch)\n",
    ),
)

SELF_CHECK_FAILED = Rule(
    id="GEO903",
    name="self-check-failed",
    summary="A rule for a layer did not agree with autograd.",
    rationale="Its result would have been wrong.",
    fix="Nothing: the samples were run one after the other instead. Report it, or correct "
    "the rule given with rule_for.",
    limits="Says which parameters; the result does not use the rule.",
    severity=Severity.LOW,
    since="0.1",
    example=Example(
        bad="@nabla.trace.rule_for(Scale)\n"
        "def rows(module, args, kwargs, grad_out):\n"
        '    return {"factor": grad_out}\n',
        good="@nabla.trace.rule_for(Scale)\n"
        "def rows(module, args, kwargs, grad_out):\n"
        '    return {"factor": (grad_out * args[0]).sum(1)}\n',
    ),
)

RULES = (
    COVERAGE_INCOMPLETE,
    SAMPLES_COUPLED,
    SELF_CHECK_FAILED,
)
