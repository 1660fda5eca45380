"""Rules about invariants that a person declared."""

from __future__ import annotations

from nabla_core.rule import Example, Rule
from nabla_core.severity import Severity

__all__ = [
    "CONTRACT_NOT_EVALUATED",
    "CUSTOM_CONTRACT",
    "GRADIENT_NORM_OUTSIDE",
    "LOSS_EXPLODING",
    "LOSS_NOT_FINITE",
    "PARAMETER_CHANGE_OUTSIDE",
    "RULES",
    "TENSOR_NOT_FINITE",
]

_DECLARED = " It says what the person declared and measured, not why."
_BAD = "{contract}\nloss = {loss}\nloss.backward()\noptimizer.step()\n"


def _example(contract: str, bad: str, good: str) -> Example:
    return Example(
        bad=_BAD.format(contract=contract, loss=bad), good=_BAD.format(contract=contract, loss=good)
    )


LOSS_NOT_FINITE = Rule(
    id="CON101",
    name="loss-not-finite",
    summary="The loss of a step was NaN or infinite although a contract wants it finite.",
    rationale="Whoever declares this wants the run to end, or the test to fail, at that step.",
    fix="Look at the NUM issues of the same step: they name the operation that made the number.",
    limits="Judges the scalar that backward is called on, before loss scaling; the mean of them "
    "when a step has several. A step without a backward is not evaluated. Steps that a gradient "
    "scaler skips are not judged." + _DECLARED,
    severity=Severity.HIGH,
    since="0.1",
    aliases=("NG1001",),
    tags=("contract",),
    example=_example(
        "wanted = nabla.contracts.loss.finite()", "model(x).log().sum()", "model(x).exp().sum()"
    ),
)

GRADIENT_NORM_OUTSIDE = Rule(
    id="CON102",
    name="gradient-norm-outside",
    summary="The norm of the chosen gradients left the range that a contract allows.",
    rationale="A norm far outside its usual range precedes divergence, or says that nothing is "
    "learnt any more.",
    fix="Look at the parameter that the evidence names; clip, lower the rate, or correct the range "
    "if the step is healthy.",
    limits="The L2 norm over the gradients that the optimizer is given: after clipping and "
    "unscaling. Parameters without a gradient count as absent; without any the contract is not "
    "evaluated." + _DECLARED,
    severity=Severity.HIGH,
    since="0.1",
    aliases=("NG2001", "NG2002"),
    tags=("contract",),
    example=_example(
        "wanted = nabla.contracts.gradient.norm(max=100.0)",
        "1e6 * model(x).square().sum()",
        "model(x).square().mean()",
    ),
)

TENSOR_NOT_FINITE = Rule(
    id="CON103",
    name="tensor-not-finite",
    summary="The output of a module held a NaN or an infinity although a contract forbids it.",
    rationale="An infinity that a later mask or clamp hides still has no usable derivative.",
    fix="Look at the named module: log, division, exp or half precision on a value at the edge.",
    limits="Judges the range of every output of leaf modules, so it needs the mode standard or "
    "deep; arithmetic between modules is not seen. A mask that is meant to hold -inf breaks the "
    "contract too: leave its module out." + _DECLARED,
    severity=Severity.HIGH,
    since="0.1",
    aliases=("NG1001",),
    tags=("contract",),
    example=_example(
        'wanted = nabla.contracts.tensor.finite(module="attention.*")',
        "attention(x / 0.0).clamp(0.0, 1.0).sum()",
        "attention(x / 2.0).clamp(0.0, 1.0).sum()",
    ),
)

PARAMETER_CHANGE_OUTSIDE = Rule(
    id="CON104",
    name="parameter-change-outside",
    summary="A step changed a parameter by more, or by less, than a contract allows.",
    rationale="Parameters that must learn and do not move, or that move by their own size, are "
    "seen in no loss curve until much later.",
    fix="Look at the named parameter: its gradient, its rate, and whether the optimizer holds it.",
    limits="The L2 norm of the change by one step over the norm before it, for each parameter. "
    "A parameter of norm zero (a bias at its start) has no relative change and is left out. "
    "Known only after the step. Steps that a fused optimizer skips are not evaluated." + _DECLARED,
    severity=Severity.HIGH,
    since="0.1",
    aliases=("NG4001",),
    tags=("contract",),
    example=_example(
        "wanted = nabla.contracts.parameter.change(min_relative=1e-8)",
        "model(x).detach().requires_grad_().sum()",
        "model(x).sum()",
    ),
)

LOSS_EXPLODING = Rule(
    id="CON105",
    name="loss-exploding",
    summary="The loss rose above the allowed multiple of its recent level.",
    rationale="A loss that multiplies within a few steps seldom comes back by itself.",
    fix="Lower the learning rate, clip the gradients, or look at the batch of that step.",
    limits="Compared with the median of the losses in the window before the step, as soon as there "
    "is one. Where that median is not positive a ratio says nothing and the step is not evaluated."
    + _DECLARED,
    severity=Severity.HIGH,
    since="0.1",
    aliases=("NG4001",),
    tags=("contract",),
    example=_example(
        "wanted = nabla.contracts.training.loss_not_exploding(max_ratio=10, window=20)",
        "(1e4 if step == 50 else 1.0) * model(x).square().mean()",
        "model(x).square().mean()",
    ),
)

CUSTOM_CONTRACT = Rule(
    id="CON199",
    name="custom-contract",
    summary="A predicate that the person wrote does not hold.",
    rationale="It is an invariant of this project that no general rule knows.",
    fix="Look at the numbers of that step; the name of the contract says what was expected.",
    limits="As right as the predicate: it sees the state at the boundary of a step, once per step "
    "of each optimizer.",
    severity=Severity.HIGH,
    since="0.1",
    aliases=("NG5001",),
    tags=("contract",),
    example=_example(
        'wanted = nabla.contract("loss is a probability", lambda step: 0 <= step.loss <= 1)',
        "model(x).square().sum()",
        "model(x).square().mean().sigmoid()",
    ),
)

CONTRACT_NOT_EVALUATED = Rule(
    id="CON901",
    name="contract-not-evaluated",
    summary="A contract could not be judged, in some steps or in all of them.",
    rationale="A contract that was never looked at must not pass for one that holds.",
    fix="Give what the reason names, or take the contract away.",
    limits="No statement about the training: only that the input of the contract was missing.",
    severity=Severity.INFO,
    since="0.1",
    tags=("contract", "coverage"),
    example=Example(
        bad="with nabla.guard(mode='light', contracts=[nabla.contracts.tensor.finite()]):\n"
        "    train()\n",
        good="with nabla.guard(contracts=[nabla.contracts.tensor.finite()]):\n    train()\n",
    ),
)

RULES = (
    LOSS_NOT_FINITE,
    GRADIENT_NORM_OUTSIDE,
    TENSOR_NOT_FINITE,
    PARAMETER_CHANGE_OUTSIDE,
    LOSS_EXPLODING,
    CUSTOM_CONTRACT,
    CONTRACT_NOT_EVALUATED,
)
