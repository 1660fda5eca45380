"""Rules about what reaches a loss, and about the layout of samples and positions."""

from __future__ import annotations

from nabla_core.rule import Example, Rule
from nabla_core.severity import Severity

__all__ = [
    "ALL_TARGETS_IGNORED",
    "BROADCAST_TARGET",
    "FUTURE_LEAK",
    "LABELS_OUT_OF_RANGE",
    "PROBABILITIES_EXPECTED",
    "RULES",
    "SAMPLES_COUPLED",
    "SIGMOID_BEFORE_LOGITS_LOSS",
    "SOFTMAX_OVER_BATCH_AXIS",
    "SOFTMAX_TWICE",
]

_LOOKED_AT = (
    "Looked at in the first six backward passes and in every 96th step. Read from the graph: "
    "a loss inside torch.compile or a custom autograd.Function is not seen."
)

SOFTMAX_TWICE = Rule(
    id="AUD401",
    name="softmax-twice",
    summary="Cross entropy, which applies log_softmax, receives probabilities.",
    rationale="Probabilities differ by at most one, so the second softmax can never be sure: the "
    "loss has a floor of log(e + C - 1) - 1 for C classes, and the gradients are small.",
    fix="Give the loss the scores before the softmax; apply softmax only to report probabilities.",
    limits="MEDIUM for a sigmoid instead of a softmax, and for a log_softmax that feeds no "
    "negative log-likelihood, because a score between 0 and 1 may be meant there. log_softmax "
    "applied twice changes nothing and is not reported. " + _LOOKED_AT,
    severity=Severity.HIGH,
    since="0.1",
    needs=("losses",),
    tags=("loss",),
    example=Example(
        bad="model = nn.Sequential(nn.Linear(8, 5), nn.Softmax(dim=1))\n"
        "loss = F.cross_entropy(model(x), y)\n",
        good="model = nn.Linear(8, 5)\nloss = F.cross_entropy(model(x), y)\n",
    ),
)

SIGMOID_BEFORE_LOGITS_LOSS = Rule(
    id="AUD402",
    name="sigmoid-before-logits-loss",
    summary="A loss that expects logits receives the output of a sigmoid or softmax, or a binary "
    "cross entropy that of two sigmoids.",
    rationale="The loss applies a sigmoid itself: of values between 0 and 1 it makes "
    "probabilities between 0.5 and 0.73, so no sample can be called negative.",
    fix="Give binary_cross_entropy_with_logits the values before the sigmoid; apply one sigmoid "
    "before binary_cross_entropy.",
    limits=_LOOKED_AT,
    severity=Severity.HIGH,
    since="0.1",
    needs=("losses",),
    tags=("loss",),
    example=Example(
        bad="loss = F.binary_cross_entropy_with_logits(torch.sigmoid(model(x)), y)\n",
        good="loss = F.binary_cross_entropy_with_logits(model(x), y)\n",
    ),
)

PROBABILITIES_EXPECTED = Rule(
    id="AUD403",
    name="probabilities-expected",
    summary="A negative log-likelihood, a divergence or a CTC loss receives values that are no "
    "log-probabilities.",
    rationale="nll_loss only picks the value of the right class and negates it: on probabilities "
    "it is the mean error rate without a logarithm, on raw scores it has no lower bound.",
    fix="Apply log_softmax before nll_loss or kl_div, or use cross_entropy on the scores.",
    limits="Raw scores are recognised by a value above 0, which no log-probability has; the log of "
    "a density may be above 0, so that is reported only when the input comes directly from a "
    "linear layer or convolution and their logsumexp is no part of the loss; a "
    "CTC loss only knows probabilities of classes. " + _LOOKED_AT,
    severity=Severity.HIGH,
    since="0.1",
    needs=("losses",),
    tags=("loss",),
    example=Example(
        bad="loss = F.nll_loss(F.softmax(model(x), dim=1), y)\n",
        good="loss = F.nll_loss(F.log_softmax(model(x), dim=1), y)\n",
    ),
)

BROADCAST_TARGET = Rule(
    id="AUD404",
    name="broadcast-target",
    summary="Prediction and target have different shapes and are compared all against all.",
    rationale="(N, 1) against (N,) becomes (N, N): the model learns the mean of all targets.",
    fix="Give both the same shape, e.g. model(x).squeeze(-1) or y.unsqueeze(-1).",
    limits="Needs two backward passes. Only when neither side has the shape of the result. A "
    "difference written by hand is reported when a (N, 1) prediction becomes (N, N) and no "
    "unsqueeze made that axis, which is how pairwise differences are written, and nothing but the "
    "arithmetic of errors follows; a loss of pairs with a common batch, or that is not reduced at "
    "once, is meant; a product of (N, 1) "
    "and (N,) when nothing but additions stand between it and the mean or sum. " + _LOOKED_AT,
    severity=Severity.HIGH,
    since="0.1",
    needs=("losses",),
    tags=("loss", "layout"),
    example=Example(
        bad="model = nn.Linear(6, 1)\nloss = F.mse_loss(model(x), x[:, 0])\n",
        good="model = nn.Linear(6, 1)\nloss = F.mse_loss(model(x).squeeze(1), x[:, 0])\n",
    ),
)

SOFTMAX_OVER_BATCH_AXIS = Rule(
    id="AUD405",
    name="softmax-over-batch-axis",
    summary="A softmax that feeds a loss runs over another axis than the classes.",
    rationale="Samples compete with each other instead of classes: each prediction depends on the "
    "rest of the batch.",
    fix="Give softmax or log_softmax the class axis, usually dim=-1 for (N, C) and 1 for "
    "(N, C, d).",
    limits="Judged only where the axis of the classes is certain: directly before a negative "
    "log-likelihood, where gather or an index takes one logarithm of each row, or before an "
    "elementwise loss whose targets sum to one in each row. " + _LOOKED_AT,
    severity=Severity.HIGH,
    since="0.1",
    needs=("losses",),
    tags=("loss", "layout"),
    example=Example(
        bad="loss = F.nll_loss(F.log_softmax(model(x), dim=0), y)\n",
        good="loss = F.nll_loss(F.log_softmax(model(x), dim=1), y)\n",
    ),
)

SAMPLES_COUPLED = Rule(
    id="AUD406",
    name="samples-coupled",
    summary="In evaluation mode the output of one sample depends on another sample.",
    rationale="Usually a reshape or a reduction has mixed the batch axis with another one: "
    "predictions change with the company that a sample is in.",
    fix="Transpose instead of reshape, and reduce over the feature axes only.",
    limits="Graph networks, set models and retrieval couple samples lawfully: MEDIUM only when "
    "the model was given different batches and runs on three samples alone, or takes one tensor "
    "and holds no square one of the batch's size, else INFO; HIGH when independent-samples is "
    "declared. Measured once, on a copy of the model and its first samples, with one random "
    "cotangent: a dependence that is zero for these is missed. Models that cannot be copied, that "
    "draw random numbers in evaluation mode or have hooks are not evaluated.",
    severity=Severity.MEDIUM,
    since="0.1",
    needs=("oracles",),
    options=("independent-samples", "oracles"),
    tags=("layout", "oracle"),
    example=Example(
        bad="hidden = encoder(x).reshape(time, batch, width).mean(0)\n",
        good="hidden = encoder(x).reshape(batch, time, width).mean(1)\n",
    ),
)

FUTURE_LEAK = Rule(
    id="AUD407",
    name="future-leak",
    summary="The output at a position depends on a later position of the input.",
    rationale="A model that predicts the next element can look it up: the training loss is far "
    "too good, and generation fails.",
    fix="Mask later positions (is_causal=True, or a triangular mask), and pad convolutions on the "
    "left only.",
    limits="Judged when causal is declared, or when the targets of a cross entropy are the "
    "model's input shifted by one. MEDIUM when they are the input itself, no position left out, "
    "and the model is measured to be causal: such a model would only copy. Measured once, on a "
    "copy of the model in evaluation mode, with one random cotangent.",
    severity=Severity.HIGH,
    since="0.1",
    needs=("oracles", "losses"),
    options=("causal", "oracles"),
    tags=("layout", "oracle"),
    example=Example(
        bad="logits = model(tokens[:, :-1])  # attention without a mask\n"
        "loss = F.cross_entropy(logits.transpose(1, 2), tokens[:, 1:])\n",
        good="logits = model(tokens[:, :-1], is_causal=True)\n"
        "loss = F.cross_entropy(logits.transpose(1, 2), tokens[:, 1:])\n",
    ),
)

LABELS_OUT_OF_RANGE = Rule(
    id="AUD408",
    name="labels-out-of-range",
    summary="Targets lie outside of what the loss or the last activation allows: beyond 0 to 1 in "
    "a binary cross entropy, 0 for a sign, out of a sigmoid's reach, the blank of a CTC "
    "loss, or padding.",
    rationale="A binary cross entropy has no lower bound then: the more wrong the model is, the "
    "lower it gets. Of a loss for signs, what has the target 0 has no gradient or both. A bounded "
    "activation saturates on targets that it cannot reach. The blank stands for no label: as a "
    "target it asks for an output that decoding removes. Counted padding makes the loss look low "
    "and teaches the model to predict padding.",
    fix="Map the labels to 0 and 1, e.g. (y + 1) / 2 for labels of -1 and 1, or to signs with "
    "2 * y - 1; scale targets to the range of the activation or remove it; keep one index for the "
    "blank alone; pass ignore_index=padding_idx.",
    limits="Needs two backward passes. Targets that a mask or weight of zero leaves out do not "
    "count, and blurred labels of a little more than one are information. Padding "
    "behind the target lengths of a CTC loss does not count. MEDIUM, after three looks, for signs "
    "(zeros and ones only: a zero may be a mask) and for a sigmoid, softmax or tanh that is "
    "compared as it is (mse, l1, huber), where more than half of the targets are out of reach. "
    "MEDIUM for padding, in three steps in a row: only where an embedding names a padding_idx, "
    "it stands at the ends of rows alone, and each such position has it for a target of a summed "
    "or averaged loss over classes that neither ignores it nor gives it the weight 0. "
    "Class indices out of range raise "
    "an error in torch itself. " + _LOOKED_AT,
    severity=Severity.HIGH,
    since="0.1",
    needs=("losses",),
    tags=("loss", "data"),
    example=Example(
        bad="y = torch.where(positive, 1.0, -1.0)\n"
        "loss = F.binary_cross_entropy_with_logits(model(x), y)\n",
        good="y = positive.float()\nloss = F.binary_cross_entropy_with_logits(model(x), y)\n",
    ),
)

ALL_TARGETS_IGNORED = Rule(
    id="AUD409",
    name="all-targets-ignored",
    summary="Every target of a batch equals ignore_index.",
    rationale="There is nothing to learn: the mean over no target is NaN, the sum is a loss "
    "without gradient.",
    fix="Mask at least one token of each sample, or skip such batches.",
    limits="With a summed loss, reported only when it happens in three backward passes in a row. "
    + _LOOKED_AT,
    severity=Severity.HIGH,
    since="0.1",
    needs=("losses",),
    tags=("loss", "data"),
    example=Example(
        bad="labels = torch.full_like(tokens, -100)\nloss = F.cross_entropy(logits, labels)\n",
        good="labels = torch.where(mask, tokens, -100)\nloss = F.cross_entropy(logits, labels)\n",
    ),
)

RULES = (
    SOFTMAX_TWICE,
    SIGMOID_BEFORE_LOGITS_LOSS,
    PROBABILITIES_EXPECTED,
    BROADCAST_TARGET,
    SOFTMAX_OVER_BATCH_AXIS,
    SAMPLES_COUPLED,
    FUTURE_LEAK,
    LABELS_OUT_OF_RANGE,
    ALL_TARGETS_IGNORED,
)
