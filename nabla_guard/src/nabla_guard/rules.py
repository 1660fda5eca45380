"""Rules about numbers in a live training loop."""

from __future__ import annotations

from nabla_core.rule import Example, Rule
from nabla_core.severity import Severity

__all__ = [
    "CANCELLATION",
    "LOSS_SCALE_COLLAPSE",
    "LOST_UPDATE",
    "NON_FINITE_BACKWARD",
    "NON_FINITE_FORWARD",
    "NON_FINITE_INPUT",
    "NON_FINITE_LOSS",
    "NON_FINITE_PARAMETER",
    "NON_FINITE_RULES",
    "NUMERICAL_INSTABILITY",
    "OVERFLOW_RISK",
    "RULES",
    "SHADOW_UNSUPPORTED",
    "UNDERFLOW",
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
    "NaN leads to later is not reported again. Steps that a gradient scaler skips are judged only "
    "when the loss before scaling is itself not finite: as information if it is infinite and fewer "
    "than three are skipped in a row."
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
    summary="A parameter became NaN or Inf, or ran away, although the gradients of that step were "
    "finite.",
    rationale="The optimizer's own arithmetic, its settings or code outside the loop broke the "
    "weights; "
    "the forward pass only shows it one step later.",
    fix="Check lr and eps for the dtype of the parameters (eps 1e-8 is zero in float16); keep half "
    "precision weights in float32 and use autocast.",
    limits=_FIRST_ONLY
    + " Weights ran away where their root mean square is above 1e4 and 1e4 times its start. "
    "A write through .data between two steps cannot be told from the optimizer's.",
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

_SHADOW = (
    "Judged on samples of the forward pass and the loss (a few early steps, then every 400), where "
    "the step can be executed again; derivatives have no shadow. The user's forward code and hooks "
    "run once more for it, their prints muted and their plain Python state put back. "
)

OVERFLOW_RISK = Rule(
    id="NUM111",
    name="overflow-risk",
    summary="A number is finite, but close to the largest one that its dtype can hold.",
    rationale="A slightly larger activation becomes Inf, and the loss NaN; in float16 that is a "
    "factor of four away.",
    fix="Subtract the maximum before exp, use logsumexp or softmax, or compute this part in "
    "float32 or bfloat16.",
    limits=_SHADOW + "Arguments of exp are held against nine tenths of the largest safe one (88.7 "
    "in float32 and bfloat16, 11.1 in float16), float16 results against a quarter of 65504. The "
    "largest number itself is taken for a mask.",
    severity=Severity.MEDIUM,
    since="0.1",
    aliases=("NG1003",),
    needs=("shadow",),
    tags=("numerics",),
    example=Example(
        bad="weights = scores.exp()  # scores up to 85\n",
        good="weights = (scores - scores.amax(-1, keepdim=True)).exp()\n",
    ),
)

UNDERFLOW = Rule(
    id="NUM112",
    name="underflow",
    summary="Most values of a tensor are too small for the full precision of its dtype, or zero.",
    rationale="What is flushed to zero is not learnt from, and a subnormal number has few correct "
    "digits.",
    fix="Scale the loss (torch.amp.GradScaler), keep this part in float32 or bfloat16, or scale "
    "the values before squaring them.",
    limits=_SHADOW + "Gradients are judged at a few early steps and every 400: those in float16, "
    "and float32 ones all of whose values are float16 numbers. Zeros alone prove nothing: at "
    "least half of the non-zero values must be subnormal.",
    severity=Severity.MEDIUM,
    since="0.1",
    aliases=("NG1004",),
    needs=("gradients",),
    tags=("numerics",),
    example=Example(
        bad="with torch.autocast('cuda', torch.float16):\n    loss = step(batch)\n"
        "loss.backward()\n",
        good="with torch.autocast('cuda', torch.float16):\n    loss = step(batch)\n"
        "scaler.scale(loss).backward()\n",
    ),
)

NUMERICAL_INSTABILITY = Rule(
    id="NUM121",
    name="numerical-instability",
    summary="A part of the program gives numbers that float64 does not confirm.",
    rationale="The loss is finite and looks like any other, but it belongs to another function.",
    fix="Use the stable form of the named op (log_softmax, logsigmoid, softplus, log1p, expm1, "
    "hypot, var), or compute this part in float32 or float64.",
    limits=_SHADOW + "A region (the own code of one module, or the code outside of modules) is "
    "judged by what leaves it, against float64 from the same inputs. Silent below 1e-3 relative "
    "error in float32, 0.03 in float16, 0.25 in bfloat16, and where moving the inputs by four "
    "roundings changes the result an eighth as much: then the data is ill-conditioned, not the "
    "code. Rounding ops and fused losses count as exact. A loss of which the wrong number is a "
    "mere term is only mentioned (info): its gradient does not contain it.",
    severity=Severity.HIGH,
    since="0.1",
    aliases=("NG1002",),
    needs=("shadow",),
    tags=("numerics",),
    example=Example(
        bad="loss = -(torch.log(torch.sigmoid(x) + 1e-40)).mean()\n",
        good="loss = -F.logsigmoid(x).mean()\n",
    ),
)

CANCELLATION = Rule(
    id="NUM122",
    name="cancellation",
    summary="A sum or difference lost most of its digits, and the result shows it.",
    rationale="What is left are rounding errors of large numbers; a variance computed so can be "
    "negative.",
    fix="Subtract before squaring (x.var, or the mean of (x - mean) squared), use expm1, log1p or "
    "2 sin(x/2)^2, or compute this part in float64.",
    limits=NUMERICAL_INSTABILITY.limits
    + " A difference counts as cancelled from operands eight times the result.",
    severity=Severity.HIGH,
    since="0.1",
    aliases=("NG1002",),
    needs=("shadow",),
    tags=("numerics",),
    example=Example(
        bad="var = (x * x).mean(-1) - x.mean(-1) ** 2\n",
        good="var = x.var(-1, correction=0)\n",
    ),
)

LOSS_SCALE_COLLAPSE = Rule(
    id="NUM131",
    name="loss-scale-collapse",
    summary="The gradient scaler keeps skipping steps.",
    rationale="A skipped step learns nothing; a scale below one means that the gradients "
    "themselves overflow, which no scale can help.",
    fix="Look for the first layer whose gradient is Inf in float16, compute it in float32, lower "
    "the learning rate, or use bfloat16.",
    limits="Skips before the first good step are the scaler's search for its scale and count only "
    "once the scale falls below one, or after 25 in a row. Later, at least 32 updates are needed. "
    "Fused optimizers that get the scaler hide their skips.",
    severity=Severity.HIGH,
    since="0.1",
    needs=("scaling",),
    tags=("numerics",),
    example=Example(
        bad="scaler.scale(model(x).exp().sum()).backward()\n",
        good="scaler.scale(model(x).float().logsumexp(-1).mean()).backward()\n",
    ),
)

LOST_UPDATE = Rule(
    id="NUM141",
    name="update-lost-to-rounding",
    summary="Steps leave half-precision weights as they were: each update is rounded away.",
    rationale="A bfloat16 number has 8 bits: an update below a 256th of the weight changes "
    "nothing, in every step again.",
    fix="Keep the weights in float32 and use autocast, keep a float32 copy in the optimizer, or "
    "round stochastically.",
    limits="Decided on up to 4096 entries per parameter, in windows of four steps whose learning "
    "rate does not rise: entries that are not zero and have a gradient in each step. Silent below "
    "90 % of them, for optimizers that hold a float32 copy, for steps with a closure (heard of "
    "only afterwards), and where AUD205 says that nothing at all changes.",
    severity=Severity.HIGH,
    since="0.1",
    needs=("gradients", "parameters"),
    tags=("numerics", "optimizer"),
    example=Example(
        bad="optimizer = torch.optim.SGD(model.bfloat16().parameters(), lr=1e-4)\n",
        good="optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)\n"
        "with torch.autocast('cpu', torch.bfloat16):\n    loss = step(batch)\n",
    ),
)

SHADOW_UNSUPPORTED = Rule(
    id="NUM151",
    name="shadow-unsupported",
    summary="Something could not be computed in float64 and is not verified.",
    rationale="Silence about it is no proof.",
    fix="Register a float64 rule with nabla.shadow_rule, or ignore NUM151.",
    limits=_SHADOW + "Said once per op or reason. Values that such an op gives count as exact.",
    severity=Severity.INFO,
    since="0.1",
    aliases=("NG1005",),
    needs=("shadow",),
    tags=("numerics",),
    example=Example(
        bad="y = torch.ops.mylib.scan(x)\n",
        good="@nabla.shadow_rule('mylib::scan')\ndef scan(x):\n    return x.cumsum(-1)\n",
    ),
)

NON_FINITE_RULES = (
    NON_FINITE_FORWARD,
    NON_FINITE_BACKWARD,
    NON_FINITE_LOSS,
    NON_FINITE_INPUT,
    NON_FINITE_PARAMETER,
)

RULES = (
    *NON_FINITE_RULES,
    OVERFLOW_RISK,
    UNDERFLOW,
    NUMERICAL_INSTABILITY,
    CANCELLATION,
    LOSS_SCALE_COLLAPSE,
    LOST_UPDATE,
    SHADOW_UNSUPPORTED,
)
