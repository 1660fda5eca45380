"""Rules about terms and parameters whose gradient is zero or cut by construction."""

from __future__ import annotations

from nabla_core.rule import Example, Rule
from nabla_core.severity import Severity

__all__ = ["LOSS_TERM_DETACHED", "RULES", "ZERO_GRADIENT_BY_CONSTRUCTION"]

LOSS_TERM_DETACHED = Rule(
    id="AUD206",
    name="loss-term-detached",
    summary="A term of the loss is computed from trained parameters but has no gradient.",
    rationale="The term is in the logged loss and changes nothing: its weight has no effect.",
    fix="Remove the detach, .data or no_grad before the term, or remove the term.",
    limits="Followed in three steps after the first one, in up to nine with several optimizers; "
    "needs two of them. Silent for a term that is itself a detached scalar (a surrogate "
    "loss, a logged value), and for one whose detached part also "
    "feeds a term with gradient, as in virtual adversarial training, unless the term is made "
    "of a derivative taken without create_graph=True. Terms that lost "
    "their gradient through item(), numpy or a custom Function are not seen; neither is anything "
    "under torch.compile, in models with torch's own attention layers or when another function "
    "mode is active.",
    severity=Severity.HIGH,
    since="0.1",
    needs=("graph",),
    tags=("wiring", "loss"),
    example=Example(
        bad="penalty = weights.detach().pow(2).mean()\nloss = fit + 5.0 * penalty\n",
        good="penalty = weights.pow(2).mean()\nloss = fit + 5.0 * penalty\n",
    ),
)

ZERO_GRADIENT_BY_CONSTRUCTION = Rule(
    id="AUD207",
    name="zero-gradient-by-construction",
    summary="A gradient is exactly zero because every path passes an operator without derivative, "
    "a product of two factors that are both zero, a softmax over one value, or a difference of a "
    "tensor with itself.",
    rationale="round, floor, sign and second derivatives of piecewise linear activations are "
    "constant almost everywhere, and so is the softmax of a single value (always 1): what lies "
    "behind them cannot learn.",
    fix="Use a straight-through estimator (x + (x.round() - x).detach()), or a smooth activation "
    "such as tanh where second derivatives are needed. For one output use a sigmoid; for attention "
    "take the softmax over the positions.",
    limits="A second derivative is reported when its first three results on one line are all "
    "exactly zero or not connected; a linear model has such a derivative lawfully. Parameters are "
    "reported after three gradients that were all exactly zero. Of products only those are looked "
    "at both of whose factors take a gradient, as in an adapter whose two matrices start at zero.",
    severity=Severity.HIGH,
    since="0.1",
    needs=("graph", "losses", "gradients.written"),
    tags=("wiring",),
    example=Example(
        bad="output = decoder(torch.round(encoder(x)))\n",
        good="z = encoder(x)\noutput = decoder(z + (torch.round(z) - z).detach())\n",
    ),
)

RULES = (LOSS_TERM_DETACHED, ZERO_GRADIENT_BY_CONSTRUCTION)
