"""Rules about the order of calls in a training loop."""

from __future__ import annotations

from nabla_core.rule import Example, Rule
from nabla_core.severity import Severity

__all__ = [
    "GRADIENTS_NOT_CLEARED",
    "RULES",
    "STEP_WITHOUT_GRADIENT",
]

STEP_WITHOUT_GRADIENT = Rule(
    id="AUD101",
    name="step-without-gradient",
    summary="The gradients were cleared between backward and the optimizer step.",
    rationale="The step has nothing to apply: the parameters never learn, and nothing raises "
    "an error.",
    fix="Move zero_grad() to the start of the iteration, before the forward pass, or behind "
    "step().",
    limits="Reported after three such steps in a row. Steps with a closure are not judged. A "
    "gradient "
    "that is zero by itself is no fault: a clear must have come after a backward that wrote.",
    severity=Severity.HIGH,
    since="0.1",
    needs=("calls", "gradients.written"),
    tags=("protocol",),
    example=Example(
        bad="for x, y in batches:\n    loss = loss_fn(model(x), y)\n    loss.backward()\n"
        "    optimizer.zero_grad()\n    optimizer.step()\n",
        good="for x, y in batches:\n    optimizer.zero_grad()\n    loss = loss_fn(model(x), y)\n"
        "    loss.backward()\n    optimizer.step()\n",
    ),
)

GRADIENTS_NOT_CLEARED = Rule(
    id="AUD102",
    name="gradients-not-cleared",
    summary="Backward adds onto gradients that the previous step has already used.",
    rationale="Each step follows the sum of all gradients so far: the step size grows without "
    "limit and old batches never stop counting.",
    fix="Call optimizer.zero_grad() once per iteration, on the optimizer or model that is stepped.",
    limits="Reported after three such steps in a row, only if every gradient of the optimizer is "
    "carried "
    "over untouched: accumulation over micro-batches, decayed or partly cleared gradients are no "
    "fault. "
    "Steps with a closure are not judged.",
    severity=Severity.HIGH,
    since="0.1",
    needs=("calls", "gradients.carried"),
    tags=("protocol",),
    example=Example(
        bad="for x, y in batches:\n    loss_fn(model(x), y).backward()\n    optimizer.step()\n",
        good="for x, y in batches:\n    optimizer.zero_grad()\n"
        "    loss_fn(model(x), y).backward()\n    optimizer.step()\n",
    ),
)

RULES = (
    STEP_WITHOUT_GRADIENT,
    GRADIENTS_NOT_CLEARED,
)
