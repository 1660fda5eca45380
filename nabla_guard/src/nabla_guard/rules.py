"""Rules about numbers in a live training loop."""

from __future__ import annotations

from nabla_core.rule import Example, Rule
from nabla_core.severity import Severity

__all__ = [
    "NON_FINITE_BACKWARD",
    "NON_FINITE_FORWARD",
    "NON_FINITE_INPUT",
    "NON_FINITE_LOSS",
    "NON_FINITE_PARAMETER",
    "RULES",
]

_LOOP = """\
for x, y in batches:
    optimizer.zero_grad()
    loss = {loss}
    loss.backward()
    optimizer.step()
"""
_FIRST_ONLY = (
    "Found at the step boundary, then the step is executed again op by op, with the user's forward "
    "code and hooks running once more (their prints are muted, Python counters put back). Where it "
    "cannot be executed again, the evidence says why and the phase is decided by exclusion. What a "
    "NaN leads to later is not reported again. Steps that a gradient scaler skips are never judged."
)

NON_FINITE_FORWARD = Rule(
    id="NUM101",
    name="non-finite-forward",
    summary="The model turned finite inputs and parameters into NaN or Inf.",
    rationale="Every later number of the step is NaN, and one optimizer step spreads it to all "
    "weights.",
    fix="Look for exp, log, division, square root or half precision in the named module; clamp its "
    "argument or use the stable form, and keep the optimizer from stepping on such a batch.",
    limits=_FIRST_ONLY
    + " An infinity in an output counts only if the same output was finite in good "
    "steps, so masks made of -inf are no fault; the first 16 outputs of a step are measured.",
    severity=Severity.HIGH,
    since="0.1",
    aliases=("NG1001", "GS001"),
    needs=("gradients", "parameters", "outputs"),
    tags=("numerics",),
    example=Example(
        bad="class Gate(nn.Module):\n    def forward(self, x):\n"
        "        e = x.exp()\n        return e / e.sum(-1, keepdim=True)\n",
        good="class Gate(nn.Module):\n    def forward(self, x):\n        return x.softmax(-1)\n",
    ),
)

NON_FINITE_BACKWARD = Rule(
    id="NUM102",
    name="non-finite-backward",
    summary="A derivative is NaN or Inf although the loss and the parameters are finite.",
    rationale="The loss looks fine while the step destroys the weights; the fault shows one step "
    "later.",
    fix="Look for a square root, norm, division or acos at the edge of its domain, also in the "
    "branch "
    "that torch.where does not take; clamp the argument before the function, not the result after "
    "it.",
    limits=_FIRST_ONLY,
    severity=Severity.HIGH,
    since="0.1",
    aliases=("NG1001", "GS002"),
    needs=("loss", "gradients", "parameters"),
    tags=("numerics",),
    example=Example(
        bad=_LOOP.format(loss="torch.where(x > 0, model(x).sqrt(), x).sum()"),
        good=_LOOP.format(loss="torch.where(x > 0, model(x).clamp(min=1e-6).sqrt(), x).sum()"),
    ),
)

NON_FINITE_LOSS = Rule(
    id="NUM103",
    name="non-finite-loss",
    summary="The loss is NaN or Inf although the model's outputs and its parameters are finite.",
    rationale="The step has nothing to learn from, and with NaN gradients it destroys the weights.",
    fix="Use the form of the loss that takes logits, sum in float32, and handle empty or fully "
    "masked "
    "targets before dividing by their number.",
    limits=_FIRST_ONLY + " A target that is itself NaN looks the same. Without a root module whose "
    "outputs were measured, forward and loss cannot be told apart; the message then says so.",
    severity=Severity.HIGH,
    since="0.1",
    aliases=("GS001",),
    needs=("loss", "parameters", "outputs"),
    tags=("numerics",),
    example=Example(
        bad=_LOOP.format(loss="-(y * torch.sigmoid(model(x)).log()).mean()"),
        good=_LOOP.format(loss="F.binary_cross_entropy_with_logits(model(x), y)"),
    ),
)

NON_FINITE_INPUT = Rule(
    id="NUM104",
    name="non-finite-input",
    summary="The batch held NaN or Inf before the model saw it.",
    rationale="No change of the model or the learning rate can help; the data preparation is "
    "at fault.",
    fix="Find the sample and column in the message; guard divisions by a standard deviation or "
    "count of "
    "zero, and decide what a missing value should become.",
    limits=_FIRST_ONLY
    + " Only floating-point arguments of root modules are looked at, and only those "
    "that were finite in the first good steps, so that NaN padding which the model masks is no "
    "fault.",
    severity=Severity.HIGH,
    since="0.1",
    aliases=("NG1001",),
    needs=("gradients", "parameters", "inputs"),
    tags=("numerics", "data"),
    example=Example(
        bad="x = (x - x.mean(0)) / x.std(0)\n" + _LOOP.format(loss="F.mse_loss(model(x), y)"),
        good="x = (x - x.mean(0)) / x.std(0).clamp(min=1e-6)\n"
        + _LOOP.format(loss="F.mse_loss(model(x), y)"),
    ),
)

NON_FINITE_PARAMETER = Rule(
    id="NUM105",
    name="non-finite-parameter",
    summary="A parameter became NaN or Inf although the gradients of that step were finite.",
    rationale="The optimizer's own arithmetic, its settings or code outside the loop broke the "
    "weights; "
    "the forward pass only shows it one step later.",
    fix="Check lr and eps for the dtype of the parameters (eps 1e-8 is zero in float16); keep half "
    "precision weights in float32 and use autocast.",
    limits=_FIRST_ONLY
    + " A write through .data between two steps cannot be told from the optimizer's.",
    severity=Severity.HIGH,
    since="0.1",
    aliases=("NG1001",),
    needs=("gradients", "parameters"),
    tags=("numerics", "optimizer"),
    example=Example(
        bad="optimizer = torch.optim.Adam(model.half().parameters(), eps=1e-8)\n",
        good="optimizer = torch.optim.Adam(model.half().parameters(), eps=1e-4)\n",
    ),
)

RULES = (
    NON_FINITE_FORWARD,
    NON_FINITE_BACKWARD,
    NON_FINITE_LOSS,
    NON_FINITE_INPUT,
    NON_FINITE_PARAMETER,
)
