"""Rules about the size of gradients."""

from __future__ import annotations

from nabla_core.rule import Example, Rule
from nabla_core.severity import Severity

__all__ = [
    "EXPLODING_GRADIENTS",
    "GRADIENT_GROWING_LINEARLY",
    "GRADIENT_SPIKE",
    "RULES",
    "VANISHING_GRADIENTS",
]

GRADIENT_SPIKE = Rule(
    id="RUN301",
    name="gradient-spike",
    summary="The gradient norm and the loss jumped together far above their recent level.",
    rationale="One oversized step can undo many good ones and often precedes divergence.",
    fix="Clip the norm near its median, or look at the batch of that step.",
    limits="Silent for the first 40 rows, for batches of one sample, and for a jump of the norm "
    "that the loss does not share. A loss that does not come back is no spike, unless it was "
    "ten times that of the untrained model and 95 % of that are gone.",
    severity=Severity.MEDIUM,
    since="0.1",
    aliases=("GS003",),
    needs=("loss", "grad_norm"),
    tags=("gradient",),
    example=Example(
        bad="loss.backward()\noptimizer.step()\n",
        good="loss.backward()\nclip_grad_norm_(model.parameters(), 1.0)\noptimizer.step()\n",
    ),
)

VANISHING_GRADIENTS = Rule(
    id="RUN302",
    name="vanishing-gradients",
    summary="The gradient, measured against the weights, shrinks from layer to layer to nothing.",
    rationale="The layers near the input do not learn.",
    fix="Use residual connections, normalisation, or an activation that does not saturate.",
    limits="Needs four layers with weights, and a ratio below 1e-4 between the first and the last"
    " in three measurements in a row, or below 1e-6 in two; of seven layers or more that all have "
    "a smaller gradient than the next, below 1 / 1500. A converged run loses its gradient in "
    "all layers together and is not reported, nor one whose weights have doubled: then the steps "
    "did it.",
    severity=Severity.HIGH,
    since="0.1",
    aliases=("GS007",),
    needs=("layer_norms",),
    tags=("gradient", "layer"),
    example=Example(
        bad="blocks = [nn.Sequential(nn.Linear(64, 64), nn.Sigmoid()) for _ in range(20)]\n",
        good="blocks = [Residual(nn.Linear(64, 64), nn.ReLU()) for _ in range(20)]\n",
    ),
)

EXPLODING_GRADIENTS = Rule(
    id="RUN303",
    name="exploding-gradients",
    summary="The gradient, measured against the weights, grows from layer to layer towards the "
    "input.",
    rationale="Depth or time multiplies the gradient; one step destroys the first layers.",
    fix="Normalise, scale the initialisation, or clip the gradient.",
    limits="Needs four layers with weights and a ratio above 1e4 between the first and the last in "
    "three measurements in a row, or above 1e6 in two, before the weights have doubled.",
    severity=Severity.HIGH,
    since="0.1",
    needs=("layer_norms",),
    tags=("gradient", "layer"),
    example=Example(
        bad="nn.init.normal_(cell.weight_hh, std=1.0)\n",
        good="nn.init.orthogonal_(cell.weight_hh)\n",
    ),
)

GRADIENT_GROWING_LINEARLY = Rule(
    id="RUN304",
    name="gradient-growing-linearly",
    summary="The gradient norm grows in proportion to the number of steps, from the first on.",
    rationale="Gradients are added up from step to step: zero_grad is missing.",
    fix="Call optimizer.zero_grad() once per step.",
    limits="The norm must grow from the first six rows on, as gradients that grow for another "
    "reason seldom do. Judged after forty rows, and until row 400 where the norm then varies by a "
    "tenth as much as the loss. A moving average of the norm, logged beside a loss that is none, "
    "looks like a sum.",
    severity=Severity.HIGH,
    since="0.1",
    needs=("grad_norm",),
    tags=("gradient",),
    example=Example(
        bad="loss.backward()\noptimizer.step()\n",
        good="optimizer.zero_grad()\nloss.backward()\noptimizer.step()\n",
    ),
)

RULES = (
    GRADIENT_SPIKE,
    VANISHING_GRADIENTS,
    EXPLODING_GRADIENTS,
    GRADIENT_GROWING_LINEARLY,
)
