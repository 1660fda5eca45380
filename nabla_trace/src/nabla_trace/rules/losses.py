"""Rules about several losses on the same parameters."""

from __future__ import annotations

from nabla_core.rule import Example, Rule
from nabla_core.severity import Severity

__all__ = [
    "LOSS_CANCELLATION",
    "LOSS_CONFLICT",
    "LOSS_DEAD",
    "LOSS_DOMINANCE",
    "LOSS_WORSENED",
    "RULES",
]

LOSS_CONFLICT = Rule(
    id="GEO101",
    name="loss-conflict",
    summary="Two losses pull the shared parameters in opposite directions.",
    rationale="What one loss gains in a step the other gives back, so neither moves as its weight"
    " suggests.",
    fix="Detach what one loss should only look at, reweight, give each loss its own layers,"
    " or project the gradients (PCGrad).",
    limits="Judged on all shared parameters together, not on one bias; a loss whose gradient is "
    "ten times smaller is no opponent. Opposition alone is no fault, and information only: "
    "critics, penalties and compromises are made of it. It is a finding where the graph shows a "
    "loss and its negative, contradictory targets of one output, or a residual that is not "
    "detached. One batch: persistence is not shown.",
    severity=Severity.MEDIUM,
    since="0.1",
    aliases=("NG2003",),
    example=Example(
        bad="loss = mse(rec, x) + mse(guess, x - rec)\nloss.backward()\n",
        good="loss = mse(rec, x) + mse(guess, (x - rec).detach())\nloss.backward()\n",
    ),
)

LOSS_CANCELLATION = Rule(
    id="GEO102",
    name="loss-cancellation",
    summary="Much of the length of the losses' gradients is lost in their sum.",
    rationale="The step follows what is left over, and small changes of the weights turn it "
    "around.",
    fix="See which pair opposes (GEO101); lower the weight of one loss, or detach its input.",
    limits="1 - |sum| / sum of lengths, with the weights that the total loss applies. It "
    "measures lost length and says nothing about causes: it is as severe as the conflicts "
    "(GEO101) of the same losses, information only without one; three orthogonal losses of one"
    " size lose 0.42 without any conflict, so that share is left out.",
    severity=Severity.MEDIUM,
    since="0.1",
    aliases=("NG2004",),
    example=Example(
        bad="loss = a + b  # the gradients of a and b are opposite\n",
        good="loss = a + 0.1 * b\n",
    ),
)

LOSS_DOMINANCE = Rule(
    id="GEO103",
    name="loss-dominance",
    summary="One loss supplies almost the whole gradient.",
    rationale="The other losses are logged but do not train the shared parameters.",
    fix="Normalise the losses, raise the small weights, or drop what is not needed.",
    limits="Length of gradients at one step; a small gradient can be all that a converged loss"
    " needs. Low where all losses are compared with targets and their gradients are in "
    "proportion to their values, so that only factors make the difference; else, as with a small "
    "penalty, information only.",
    severity=Severity.LOW,
    since="0.1",
    example=Example(
        bad="loss = 1000.0 * a + b\n",
        good="loss = a / a.detach() + b / b.detach()\n",
    ),
)

LOSS_WORSENED = Rule(
    id="GEO104",
    name="loss-worsened-by-step",
    summary="One loss got worse through the step that lowered the total.",
    rationale="The step paid for one loss with another.",
    fix="Compare the gradients of the two (level=layers), and lower the weight of the winner.",
    limits="The same batch before and after one step; a single step of a noisy loss proves little. "
    "Information only where less than half of what the other losses gained was given back.",
    severity=Severity.LOW,
    since="0.1",
    example=Example(
        bad="total = 10 * a + b\n",
        good="total = a + b\n",
    ),
)

LOSS_DEAD = Rule(
    id="GEO105",
    name="loss-dead",
    summary="A loss has no gradient on the traced parameters.",
    rationale="It is added to the total and changes nothing.",
    fix="Remove the detach, item() or no_grad between the parameters and the loss, or trace"
    " its parameters.",
    limits="A loss that is only logged has no gradient on purpose; so has one of parameters "
    "that are not traced. Information only where the loss is exactly 0 or ends in a clamp: a "
    "margin that is kept, or a weight that is not yet switched on.",
    severity=Severity.MEDIUM,
    since="0.1",
    example=Example(
        bad="reg = weights.detach().pow(2).mean()\nloss = fit + 5.0 * reg\n",
        good="reg = weights.pow(2).mean()\nloss = fit + 5.0 * reg\n",
    ),
)

RULES = (
    LOSS_CONFLICT,
    LOSS_CANCELLATION,
    LOSS_DOMINANCE,
    LOSS_WORSENED,
    LOSS_DEAD,
)
